"""The door: plain data from a file becomes a frozen dataclass, or one precise error.

pydantic validates; this file adds what it lets pass in plain dataclasses, and words its findings.
"""

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache
from math import isfinite
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from sim.config.errors import InputError
from sim.config.units import Unit

T = TypeVar("T")

_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


def validate(data: Any, kind: type[T], where: str) -> T:
    """Turn plain data into the frozen dataclass `kind`; the only place where pydantic is used.

    Unknown keys are refused with the nearest known one, and so is a value of another type than
    the key's, where pydantic would convert it. Raises `InputError`.
    """
    from pydantic import ValidationError

    shape: Any = kind
    _refuse(data, shape, where)
    try:
        checked: T = _adapter(shape).validate_python(data)
    except ValidationError as error:
        raise _first_fault(error, where) from None
    return checked


@cache
def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _refuse(data: Any, kind: Any, where: str, key: str = "") -> None:
    """What pydantic lets pass in plain dataclasses: unknown keys, and values it would convert."""
    shape = _dataclass_in(kind)
    if isinstance(data, list):
        for item in data:
            _refuse(item, kind, where, key)
    elif isinstance(data, dict) and get_origin(kind) in (dict, Mapping):
        for inner, value in data.items():
            _refuse(value, get_args(kind)[1], _within(where, key), inner)
    elif isinstance(data, dict) and shape is not None:
        known = get_type_hints(shape, include_extras=True)
        place = _within(where, key)
        for inner, value in data.items():
            if inner not in known:
                raise InputError(place, f"unknown key {inner!r}", nearest(inner, list(known)))
            _refuse(value, known[inner], place, inner)
    elif shape is None or not is_dataclass(data):
        _refuse_conversion(data, kind, where, key)


def _within(where: str, key: str) -> str:
    return f"{where}, {key}" if key else where


def _refuse_conversion(value: Any, kind: Any, where: str, key: str) -> None:
    wanted = _plain_types(kind)
    if isinstance(value, float) and not isfinite(value):
        raise InputError(where, f"{key} = {value} is not a finite number", "write a finite one")
    if not wanted or type(value) in wanted:
        return
    words = " or ".join(_WORDS[one] for one in _WORDS if one in wanted)
    shown = json.dumps(value, default=str)
    raise InputError(where, f"{key} = {shown} is not {words}", f"write {key} = {_sample(wanted)}")


def _plain_types(kind: Any) -> set[type]:
    """Those of bool, int, float and str that an annotation admits; none where it is not plain."""
    if get_origin(kind) is Annotated:
        own, *marks = get_args(kind)
        return set() if any(isinstance(mark, Unit) for mark in marks) else _plain_types(own)
    if get_origin(kind) is Literal:
        return {type(value) for value in get_args(kind)}
    if get_origin(kind) in (Union, UnionType):
        parts = [_plain_types(part) for part in get_args(kind) if part is not type(None)]
        return set().union(*parts) if all(parts) else set()
    if get_origin(kind) is tuple:
        return _plain_types(get_args(kind)[0])
    return {float, int} if kind is float else {kind} & set(_WORDS)


def _sample(wanted: set[type]) -> str:
    for one, sample in ((int, "4"), (float, "0.5"), (bool, "true")):
        if one in wanted:
            return sample
    return '"..."'


def _first_fault(error: Any, where: str) -> InputError:
    fault = error.errors()[0]
    steps = [str(step) for step in fault["loc"]]
    place = ", ".join([where, ".".join(steps[:-1])] if len(steps) > 1 else [where])
    key = steps[-1] if steps else ""
    if fault["type"] in ("missing", "missing_argument", "missing_keyword_only_argument"):
        return InputError(place, f"{key} is missing", f"add {key} = ...")
    what, _, remedy = fault["msg"].removeprefix("Value error, ").partition("; ")
    if fault["type"] == "value_error":
        return InputError(place, f"{key}: {what}" if key else what, remedy or "correct it there")
    shown = json.dumps(fault["input"], default=str)
    what = f"{key} = {shown}: {what[0].lower()}{what[1:]}"
    return InputError(place, what, _remedy(fault, key))


def _remedy(fault: Any, key: str) -> str:
    context = fault.get("ctx", {})
    if fault["type"] == "literal_error":
        return nearest(str(fault["input"]), re.findall(r"'([^']*)'", context["expected"]))
    for name, words in (("ge", "at least"), ("gt", "above"), ("le", "at most"), ("lt", "below")):
        if name in context:
            return f"set {key} {words} {context[name]}"
    return f"mend {key}"


def _dataclass_in(kind: Any) -> Any:
    """The dataclass that an annotation such as `tuple[Straggler, ...]` or `Plan | None` holds."""
    if is_dataclass(kind):
        return kind
    return next((found for part in get_args(kind) if (found := _dataclass_in(part))), None)


def nearest(word: str, known: Sequence[str]) -> str:
    """What to say to someone who wrote a word that is not known.

    >>> nearest("microbach", ["microbatch", "tp"]), nearest("x", ["tp", "pp"])
    ("did you mean 'microbatch'?", 'known: tp, pp')
    """
    near = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
