"""Under what a stored answer is found: the question and the program that answered it."""

import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from json import dumps
from pathlib import Path
from typing import Any

import sim
from sim.analysis.sweeps.points import Point
from sim.config.errors import InputError
from sim.config.reads import joined
from sim.scenario.scenario import BaseScenario

# Packages that numbers come from; the last two train the models of shared updates.
_COMPUTES = ("numpy", "simpy", "torch", "scikit-learn")


def key(scenario: str | BaseScenario, point: Point, extra: tuple[Any, ...] = ()) -> str:
    """The hash of a question: a scenario by name or by all that it says, a point, the program's
    version.

    What its files say is no part of it: which files are read shows only while it is answered, see
    `sim.config.reads`.
    """
    named = scenario if isinstance(scenario, str) else dumps(_told(scenario), sort_keys=True)
    asked = dumps([_told(point), extra], sort_keys=True)
    return joined([program_version(), named, asked])


def _told(value: Any) -> Any:
    """A value as plain data, with the class of whatever has one. Raises `InputError` for what
    cannot be told apart from others of its class."""
    if is_dataclass(value) and not isinstance(value, type):
        own = {one.name: _told(getattr(value, one.name)) for one in fields(value)}
        return [type(value).__qualname__, own]
    if isinstance(value, Mapping):
        return {str(name): _told(own) for name, own in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_told(own) for own in value]
    if value is None or isinstance(value, str | int | float):
        return value
    if hasattr(value, "tolist"):  # of numpy
        return value.tolist()
    what = f"a {type(value).__name__} cannot be told apart from another"
    raise InputError("sim sweep", what, "describe the scenario by files, or by objects of sim")


def program_version() -> str:
    """A hash of the package's source, of modules added to it, and of what it computes with."""
    added = {
        name: file
        for name, module in list(sys.modules.items())
        if name.startswith("sim.") and (file := getattr(module, "__file__", None))
        if not file.startswith(str(_ROOT))
    }
    own = _own_version()
    return joined([own, *(_source(name, Path(added[name])) for name in sorted(added))])


_ROOT = Path(sim.__file__).parent


@cache
def _own_version() -> str:
    files = sorted(_ROOT.rglob("*.py"))
    texts = [_source(str(path.relative_to(_ROOT)), path) for path in files]
    return joined([*texts, *map(_version, _COMPUTES)])


def _source(name: str, path: Path) -> str:
    return f"{name}\n{path.read_text(encoding='utf-8')}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"
