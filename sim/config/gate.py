"""The gate for values from outside: which numbers, texts and nestings are accepted.

Numbers are finite and, where they are not zero, between `LEAST` and `MOST` in size. No sensible
number of a file is outside of this range in SI units (the FLOP of a month on 100,000 GPUs are some
1e26). A product of eleven such numbers still fits a double.
"""

import json
import re
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any

from sim.config.errors import InputError

LEAST, MOST = 1e-27, 1e27
DEEP = 32  # levels of tables and lists; the deepest packaged file has six
_STEERING = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")  # without tabs and ends of lines
SEPARATORS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")  # commas of thousands
_SHOWN = 60  # characters of a value that a message quotes


def fault_of(value: float) -> str:
    """The fault of a number; empty if the number is accepted.

    >>> fault_of(float("nan")), fault_of(1e-300), fault_of(0.0)
    ('is not a finite number', 'is not between 1e-27 and 1e+27 in size', '')
    """
    try:
        number = float(value)
    except OverflowError:  # a whole number too large for a float
        number = float("inf") if isinstance(value, float) else 2 * MOST
    if not isfinite(number):
        return "is not a finite number"
    if number and not LEAST <= abs(number) <= MOST:
        return f"is not between {LEAST:g} and {MOST:g} in size"
    return ""


def refuse_unsound(document: Any, where: str) -> None:
    """Refuse tables and lists nested more than `DEEP`, and texts that could steer a terminal.
    Raises `InputError`."""
    level: list[Any] = [[document]]
    for _ in range(DEEP + 1):
        inner = [value for table in level for value in _inner(table)]
        for text in inner:
            if isinstance(text, str) and _STEERING.search(text):
                fault = f"has control characters in {text[:_SHOWN]!a}"
                raise InputError(where, fault, "leave them out")
        level = [value for value in inner if isinstance(value, Mapping | list)]
        if not level:
            return
    raise InputError(where, f"is nested more than {DEEP} deep", "write it flatter")


def _inner(value: Any) -> Iterable[Any]:
    """The keys and values of a table, the entries of a list."""
    return (*value.keys(), *value.values()) if isinstance(value, Mapping) else value


def shown(value: Any) -> str:
    """A value as a message quotes it; long values are cut.

    >>> shown("dp"), shown([1, 2]), shown(1e999), shown("x" * 100)[-6:]
    ('"dp"', '[1, 2]', 'infinity', 'xxx...')
    """
    try:
        text = json.dumps(value, default=str)
        if isinstance(value, float):
            text = str(value).replace("inf", "infinity")  # the user's value, no answer of sim
    except (ValueError, RecursionError):  # a whole number of more digits than Python prints
        text = f"a {type(value).__name__} too long to print"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
