"""Checks of values from Python, by the rules for files: in new dataclasses, and in calls.

A call with unknown arguments, or with values of wrong types, is refused before any work.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache, lru_cache, wraps
from importlib import import_module
from inspect import Parameter, signature
from itertools import compress
from operator import attrgetter, is_not
from os import PathLike
from types import GenericAlias, NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin

from sim.config import gate
from sim.config.errors import InputError
from sim.config.schema import WORDS, annotations_of, refuse_conversion, validated_field
from sim.config.units import EXAMPLES, Unit

T = TypeVar("T")


def checked_call(function: Callable[..., T], name: str) -> Callable[..., T]:
    """The function with checks: it raises `InputError` for unknown and missing arguments, and for
    arguments whose plain types (numbers, texts, truth values) differ from its annotations.

    >>> def double(number: int) -> int:
    ...     return 2 * number
    >>> checked_call(double, "double")(3)
    6
    >>> checked_call(double, "double")(nummer=3)
    Traceback (most recent call last):
    sim.config.errors.InputError: double: no argument 'nummer'; did you mean 'number'?
    """
    called = signature(function)
    known = called.parameters
    free = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in known.values())

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> T:
        if unknown := [key for key in kwargs if key not in known and not free]:
            raise InputError.unknown(name, f"no argument {unknown[0]!r}", unknown[0], [*known])
        try:
            given = called.bind(*args, **kwargs)
        except TypeError as error:
            raise InputError(name, str(error), f"write {name}{_shape(known)}") from None
        for key, value in given.arguments.items():
            kind = known[key].annotation
            if known[key].kind is Parameter.VAR_POSITIONAL:
                kind = GenericAlias(tuple, (kind, ...))
            if known[key].kind is not Parameter.VAR_KEYWORD and value is not known[key].default:
                plain = value.tolist() if type(value).__module__ == "numpy" else value
                given.arguments[key] = _accepted(plain, kind, name, key)
        return function(*given.args, **given.kwargs)

    return checked


def _accepted(value: Any, kind: Any, name: str, key: str) -> Any:
    """A value that fits its annotation; it may be written as a text. Raises `InputError`."""
    if isinstance(value, str) and not _fits(value, kind):
        value = import_module("sim.config.meant").read(value, kind, name, key)
    if get_origin(kind) is Literal and value not in get_args(kind):
        fault = f"{key} = {gate.shown(value)} is not known"
        known = [str(value) for value in get_args(kind)]
        raise InputError.unknown(name, fault, str(value), known)
    refuse_conversion(value, kind, name, key)
    if not _fits(value, kind):
        fault = f"{key} = {gate.shown(value)} is not {_words(kind)}"
        raise InputError(name, fault, f"see help({name})")
    return value


def _fits(value: Any, kind: Any) -> bool:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_fits(value, choice) for choice in inner)
    if origin is Annotated:
        return _fits(value, inner[0])
    if origin is Literal:
        return value in inner
    if kind is Any or not isinstance(origin or kind, type) or getattr(kind, "_is_protocol", False):
        return True  # such annotations cannot be checked
    if (origin or kind) is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(value, str | bytes | Mapping) and origin in (Iterable, Sequence):
        return False  # a text is no list of texts, and a table is no list of its keys
    if not isinstance(value, origin or kind) or (kind is int and isinstance(value, bool)):
        return False
    if isinstance(value, Mapping) and len(inner) == 2:
        return all(_fits(key, inner[0]) and _fits(entry, inner[1]) for key, entry in value.items())
    if isinstance(value, list | tuple | set | Mapping) and inner:
        return all(_fits(entry, inner[0]) for entry in value)
    return True


_NOUNS = {**WORDS, NoneType: "None", PathLike: "a path", Mapping: "a table"}


def _words(kind: Any) -> str:
    """The types that fit, in words."""
    if get_origin(kind) in (Union, UnionType):
        said = dict.fromkeys(_words(choice) for choice in get_args(kind) if choice is not NoneType)
        return " or ".join(said)
    origin = get_origin(kind) or kind
    if origin is Annotated:
        return _words(get_args(kind)[0])
    if origin in (Iterable, Sequence, list, tuple):
        return "a list"
    return _NOUNS.get(
        origin,
        f"a {origin.__name__.removeprefix('Base')}" if isinstance(origin, type) else str(origin),
    )


def _shape(known: Any) -> str:
    """The arguments that have to be given, as text."""
    needed = [key for key, parameter in known.items() if parameter.default is Parameter.empty]
    return f"({', '.join(needed)}, ...)"


class Named(type):
    """The metaclass of dataclasses that raise `InputError` for unknown and missing fields."""

    def __call__(cls: Any, *args: Any, **kwargs: Any) -> Any:
        known, needed = _keys(cls)
        if args or not kwargs.keys() <= known or not needed <= kwargs.keys():
            _refuse(cls.__name__, known, needed, args, kwargs)
        return type.__call__(cls, *args, **kwargs)


@cache
def _keys(kind: Any) -> tuple[set[str], set[str]]:
    """The arguments that can be given, and the arguments that have to be."""
    entries = [entry for entry in fields(kind) if entry.init]
    needed = {entry.name for entry in entries if entry.default is entry.default_factory is MISSING}
    return {entry.name for entry in entries}, needed


def _refuse(name: str, known: set[str], needed: set[str], args: Any, given: Any) -> None:
    if unknown := [key for key in given if key not in known]:
        raise InputError.unknown(name, f"no field {unknown[0]!r}", unknown[0], sorted(known))
    missing = sorted(needed - given.keys())
    fault = "fields are given by their names" if args else f"{missing[0]} is missing"
    raise InputError(name, fault, f"write {name}({missing[0] if missing else 'name'}=...)")


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
                raise InputError(where, f"{key!r} names no value", "shorten the key")
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
