"""Under what a stored answer is found: the question and the program that answered it."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from json import dumps
from typing import Any

from sim.analysis.program_version import program_version
from sim.analysis.sweeps.points import Point
from sim.config.errors import InputError
from sim.config.reads import joined
from sim.scenario.scenario import BaseScenario


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
    fault = f"a {type(value).__name__} cannot be told apart from another"
    raise InputError("sim sweep", fault, "describe the scenario by files, or by objects of sim")
