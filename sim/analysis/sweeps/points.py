"""The points of a sweep: `plan.tp=1,2,4`, `network.bandwidth=100..800Gb/s:5`, or rows of a CSV."""

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from sim.config import reads
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.scenario.setting_texts import value_of

Point = Mapping[str, Any]

_NUMBER = r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})\s*([A-Za-z][A-Za-z/]*)?(?::(\d+))?")
_LIST_COMMA = re.compile(r",(?![^\[]*\])")
_MOST = 1_000_000  # the most rows that a table and its store hold with ease
_EXAMPLE = "write plan.tp=1,2,4 or network.bandwidth=100..800Gb/s:5 (five evenly spaced values)"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepAxis:
    """A key and the values that it takes."""

    key: str
    values: tuple[Any, ...]


def axis(text: str) -> SweepAxis:
    """Read the text of a `--vary`. Raises `InputError` if it is not `key=values`.

    `a..b` counts up by one. `a..b:n` are n evenly spaced values from a to b, both included. A unit
    after b holds for all values. Commas separate values and ranges.

    >>> axis("plan.tp=1,2,4..6").values
    (1, 2, 4, 5, 6)
    >>> axis("network.bandwidth=100..400Gb/s:3").values
    ('100 Gb/s', '250 Gb/s', '400 Gb/s')
    """
    where = f"--vary {text}"
    key, equals, listed = text.partition("=")
    if not equals or not key.strip():
        raise InputError(where, "is not of the form key=values", _EXAMPLE)
    parts = [part.strip() for part in _LIST_COMMA.split(listed)]
    if not all(parts):
        raise InputError(where, "has an empty value or no values at all", _EXAMPLE)
    values = tuple(value for part in parts for value in _values(part, where))
    distinct = {repr(value): value for value in map(_hashable, values)}
    return SweepAxis(key=key.strip(), values=tuple(distinct.values()))


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _values(part: str, where: str) -> Sequence[Any]:
    matched = _RANGE.fullmatch(part)
    if not matched:
        return [value_of(part)]
    low, high, unit, count = matched.groups()
    numbers = _counted(low, high, where) if count is None else _even(low, high, int(count), where)
    return [f"{number:.12g} {unit}" for number in numbers] if unit else numbers


def _counted(low: str, high: str, where: str) -> Sequence[float]:
    if _whole(low) and _whole(high):
        _refuse_many(int(high) - int(low) + 1, where)
    if not (_whole(low) and _whole(high)):
        raise InputError(where, "does not say how many values", f"{low}..{high}:5 has five values")
    if int(high) < int(low):
        raise InputError(where, f"the range {low}..{high} is empty", f"write {high}..{low}")
    return list(range(int(low), int(high) + 1))


def _even(low: str, high: str, count: int, where: str) -> Sequence[float]:
    if count < 1:
        raise InputError(where, "a range of 0 values is empty", f"write {low}..{high}:5")
    _refuse_many(count, where)
    first, last = float(low), float(high)
    numbers = [first + (last - first) * i / max(count - 1, 1) for i in range(count)]
    whole = _whole(low) and _whole(high) and all(number.is_integer() for number in numbers)
    return [int(number) for number in numbers] if whole else numbers


def _refuse_many(count: int, where: str) -> None:
    if count > _MOST:
        raise InputError(where, f"has {count:,} values", f"give at most {_MOST:,}")


def _whole(text: str) -> bool:
    return text.lstrip("+-").isdigit()


def points(
    axes: Sequence[SweepAxis], rows: Sequence[Point] = ({},), *, zipped: bool = False
) -> list[Point]:
    """Return all combinations of the axes' values for each of `rows`. If `zipped`, the axes' first
    values form a point, then their second values, and so on.

    Raises `InputError` for a key that is varied twice, and for zipped axes of unequal length.

    >>> points([axis("a=1,2"), axis("b=3,4")], zipped=True)
    [{'a': 1, 'b': 3}, {'a': 2, 'b': 4}]
    """
    names = [axis.key for axis in axes]
    keys = names + list(rows[0] if rows else {})
    for key in keys:
        if keys.count(key) > 1:
            raise InputError("sim sweep", f"{key} is varied twice", "vary it once")
    lengths = {len(axis.values) for axis in axes}
    if zipped and len(lengths) > 1:
        counts = ", ".join(f"{axis.key} {len(axis.values)}" for axis in axes)
        raise InputError("--zip", f"unequal numbers of values ({counts})", "make them equal")
    values = [axis.values for axis in axes]
    side = min(lengths, default=1) if zipped else prod(map(len, values))
    _refuse_many(len(rows) * side, "sim sweep")
    grid: Iterable[tuple[Any, ...]] = (
        zip(*values, strict=True) if zipped and axes else product(*values)
    )
    combined = [dict(zip(names, chosen, strict=True)) for chosen in grid]
    return [{**row, **point} for row in rows for point in combined]


def rows(path: Path) -> list[Point]:
    """Return the rows of a CSV whose columns are keys. An empty cell keeps the scenario's value.

    Raises `InputError` where the file cannot be read or has no rows.
    """
    try:
        read = list(csv.DictReader(StringIO(reads.text(path, where=f"--csv {path}")), strict=True))
    except csv.Error as error:
        raise InputError(f"--csv {path}", f"cannot be read ({error})", "check the file") from None
    if not read:
        raise InputError(f"--csv {path}", "has no rows", "write a row for each point")
    if any(None in row or None in row.values() for row in read):
        raise InputError(f"--csv {path}", "has rows of unequal length", "correct them")
    return [
        {key.strip(): value_of(cell.strip()) for key, cell in row.items() if cell.strip()}
        for row in read
    ]
