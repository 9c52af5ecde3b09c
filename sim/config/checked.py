"""Dataclasses that are validated when they are made, by the rules for files."""

from collections.abc import Callable, Container, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache, lru_cache
from itertools import compress
from operator import attrgetter, is_not
from typing import Any, TypeVar, cast, get_args

from sim.config import gate
from sim.config.calls import Named
from sim.config.errors import InputError
from sim.config.schema import annotations_of, validated_field
from sim.config.units import EXAMPLES, Unit

T = TypeVar("T")


class Checked(metaclass=Named):
    """Validates the fields that are given when an instance is made: types, bounds and choices as in
    their annotations. Tables and texts in short form are spelled out; a quantity is a text with its
    unit, or a number in SI.

    Validated values are cached, because a search makes hundreds of thousands of plans from few
    values. Raises `InputError`.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        kind: Any = type(self)
        values, defaults, _ = _fields(kind)
        given = values(self)
        for key, value in compress(
            zip(defaults, given, strict=True), map(is_not, given, defaults.values())
        ):
            default = defaults[key]
            if type(value) is type(default) and value == default:
                continue
            checked = _checked(kind, key, value)
            if checked is not value:
                object.__setattr__(self, key, checked)


def replaced(thing: T, **changes: Any) -> T:
    """Like `dataclasses.replace` for a `Checked` object without slots, but it validates only the
    `changes`: the object's other values were validated when it was made."""
    kind: Any = type(thing)
    values, defaults, _ = _fields(kind)
    made: T = object.__new__(kind)
    made.__dict__.update(zip(defaults, values(thing), strict=True))
    for key, value in changes.items():
        made.__dict__[key] = _checked(kind, key, value)
    return made


@cache
def _fields(
    kind: Any,
) -> tuple[Callable[[Any], tuple[Any, ...]], dict[str, Any], frozenset[str]]:
    """A function that reads all fields of a dataclass, the fields' defaults (or `MISSING`), and the
    names of the fields that are written with a unit."""
    defaults = {
        f.name: f.default if f.default_factory is MISSING else f.default_factory()
        for f in fields(kind)
    }
    hints = annotations_of(kind).written
    quantities = frozenset(name for name, hint in hints.items() if has_unit(hint))
    return attrgetter(*defaults), defaults, quantities


def has_unit(hint: Any, symbols: Container[str] = EXAMPLES) -> bool:
    """Whether an annotation, or a part of it, is written with one of these units."""
    marks = (*getattr(hint, "__metadata__", ()), *get_args(hint))
    return any(
        mark.symbol in symbols if isinstance(mark, Unit) else has_unit(mark, symbols)
        for mark in marks
    )


def structure(thing: Any) -> Any:
    """The values of a dataclass; for a rate or a time, only whether the value is nonzero. Inner
    dataclasses are treated in the same way."""
    if not is_dataclass(thing):
        return thing
    kind: Any = type(thing)
    told, measured = _rates(kind)
    values = [structure(getattr(thing, name)) for name in told]
    return kind, values, [bool(getattr(thing, name)) for name in measured]


def is_rate(thing: Any, key: str) -> bool:
    """Whether a dotted key names a rate or a time of a dataclass."""
    head, _, rest = key.partition(".")
    if not is_dataclass(thing):
        return False
    kind: Any = type(thing)
    return is_rate(getattr(thing, head, None), rest) if rest else head in _rates(kind)[1]


@cache
def _rates(kind: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The fields of a dataclass that are neither rates nor times, then the rates and times."""
    given = annotations_of(kind).written
    names = [field.name for field in fields(kind)]
    rates = tuple(n for n in names if n in given and has_unit(given[n], ("B/s", "s")))
    return tuple(name for name in names if name not in rates), rates


def _check_number(value: float, where: str) -> None:
    if fault := gate.fault_of(value) or ("is not positive" if value <= 0 else ""):
        raise InputError(where, f"{value:g} {fault}", "write a positive number in SI units")


def _checked(kind: Any, key: str, value: Any) -> Any:
    """A value of a field, validated."""
    if key in _fields(kind)[2] and isinstance(value, int | float):
        _check_number(value, f"{kind.__name__}, {key}")
        return value
    try:
        return _known(kind, key, value)
    except TypeError:  # the value cannot be hashed
        return validated_field(kind, key, value, kind.__name__)


@lru_cache(maxsize=4096, typed=True)
def _known(kind: Any, key: str, value: Any) -> Any:
    return validated_field(kind, key, value, kind.__name__)


def altered(thing: T, changes: Mapping[str, Any], where: str) -> T:
    """A dataclass with values of dotted keys changed, each validated as a value of a file.

    Raises `InputError`.
    """
    for key, value in changes.items():
        head, _, rest = key.partition(".")
        if rest:
            inner = getattr(thing, head, None)
            if not is_dataclass(inner):
                raise InputError(where, f"{key!r} is not there to be changed", "shorten the key")
            value = altered(inner, {rest: value}, f"{where}, {head}")
        else:
            value = validated_field(type(thing), head, value, where)
        try:
            thing = cast(T, replace(cast(Any, thing), **{head: value}))
        except (TypeError, ValueError) as error:
            raise InputError.of(where, error, f"{key}: ") from None
    return thing


def refuse(table: object, why: str, *keys: str) -> None:
    """Raise `ValueError` for a key that is not at its default: "KEY would WHY, or leave it out"."""
    known = table.__dataclass_fields__  # type: ignore[attr-defined]
    for key in keys:
        if getattr(table, key) != known[key].default:
            raise ValueError(f"{key} would {why}, or leave {key} out")
