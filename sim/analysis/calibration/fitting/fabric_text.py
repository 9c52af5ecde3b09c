"""A fabric's profile as text: where it is from, its constants, its errors."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sim.analysis.calibration.fitting.fabric_profile import text
from sim.collectives.libraries.profile import FOLDER, FabricProfile, find
from sim.config import catalog
from sim.config.errors import InputError


def is_fabric(name: str) -> bool:
    """Whether a name, or a path, is that of a fabric's profile.

    >>> is_fabric("dgx-a100-hdr")
    False
    """
    try:
        return "backend" in catalog.read(catalog.find(FOLDER, name))
    except InputError:
        return False


def describe(name: str) -> str:
    """Provenance, constants and errors of a fabric's profile. Raises `InputError`."""
    profile = _profile(name)
    lines = [f"{Path(name).stem}: collectives of {profile.backend}"]
    lines += [f"  {key:10}{value}" for key, value in profile.provenance.items() if value != ""]
    lines += ["", *(f"  {path} = {value}" for path, value in _flat(profile.constants))]
    return "\n".join([*lines, "", text(profile.residuals)])


def _profile(name: str) -> FabricProfile:
    profile = find(name)
    assert profile is not None, "the caller has asked `is_fabric`"
    return profile


def _flat(table: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
