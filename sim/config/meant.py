"""The likely meaning of a value of the wrong type: a number in a text, and the remedy to print."""

import re
from collections.abc import Collection
from typing import Any, get_args

from sim.config import spoken
from sim.config.errors import InputError
from sim.config.units import Unit

_FALSE = ("0", "0.0", "false", "no", "off", "")
_BINARY = re.compile(r"([\d.]+)\s*[kK]")  # of counts: a sequence of 8K tokens has 8,192


def read(text: str, kind: Any, where: str, key: str) -> Any:
    """The number in a text where an annotation has a unit, else the text. Raises `InputError`.

    >>> from sim.config.units import Number, Seconds
    >>> read("15T", Number | None, "cost", "tokens"), read("2 min", Seconds, "cost", "deadline")
    (15000000000000.0, 120.0)
    """
    marks = (mark for part in (kind, *get_args(kind)) for mark in get_args(part)[1:])
    unit = next((mark for mark in marks if isinstance(mark, Unit)), None)
    try:
        return unit.read(text) if unit else text
    except ValueError as error:
        raise InputError.of(where, error, f"{key}: ") from None


def remedy(key: str, value: Any, wanted: Collection[type]) -> str:
    """How to write a value so that it is of one of the plain types `wanted`.

    >>> remedy("seq", "8K", {int}), remedy("chance", "90%", {int, float})
    ('write seq = 8192', 'write chance = 0.9')
    >>> remedy("tp", 3.6, {int}), remedy("zero", "two", {int}), remedy("fit", "no", {bool})
    ('write tp = 4', 'write zero in digits', 'write fit = false')
    """
    if int in wanted or float in wanted:
        number = _number(value, whole=float not in wanted)
        return f"write {key} in digits" if number is None else f"write {key} = {number}"
    if bool in wanted:
        return f"write {key} = {'false' if str(value).lower() in _FALSE else 'true'}"
    return f'write {key} = "..."'


def _number(value: Any, *, whole: bool) -> str | None:
    """The number that is meant, in digits; None where a value is no positive number."""
    try:
        binary = _BINARY.fullmatch(str(value).strip()) if whole else None
        number = 1024 * float(binary[1]) if binary else spoken.number_in(str(value))
    except ValueError:
        return None
    if whole or (number.is_integer() and number < 1e12):
        return str(max(1, round(number)))
    return f"{number:.12g}"
