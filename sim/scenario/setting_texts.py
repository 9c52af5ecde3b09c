"""Settings as texts: `key=value`, and the names of profiles."""

import tomllib
from typing import Any

from sim.config import catalog
from sim.config.errors import InputError


def setting(written: str) -> tuple[str, Any]:
    """Return key and value of a `key=value` text. Raises `InputError` for anything else."""
    key, equals, text = written.partition("=")
    if not equals or not key.strip():
        raise InputError(f"--set {written}", "is not of the form key=value", "e.g. plan.tp=4")
    return key.strip(), value_of(text.strip())


def value_of(text: str) -> Any:
    """Return a value as written after `key=`: TOML, or a bare text such as 400 Gb/s."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text  # a bare word or a quantity such as 400 Gb/s


FOLDER = "topologies/profiles"


def setting_of(name: str) -> tuple[str, str]:
    """Return key and value of the setting that uses a profile (name or path) of a device's kernels
    or of a collective library. Raises `InputError` for another file."""
    path = catalog.find(FOLDER, name, where="--profile")
    keys = catalog.read(path).keys()
    if "backend" in keys:
        return "topology.backend", name
    if "measurements" in keys:
        return "device.profile", name
    fault = "is the profile neither of a device nor of a collective library"
    spread = "errors of measured runs belong in topologies/validated/" * ("spreads" in keys)
    raise InputError(catalog.place(path), fault, spread or "`sim calibrate` writes one")
