"""Checks of calls from Python: unknown arguments and values of wrong types are refused before any
work, with a message of one line, as for a file."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache, wraps
from importlib import import_module
from inspect import Parameter, signature
from os import PathLike
from types import GenericAlias, NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from sim.config import gate
from sim.config.errors import InputError
from sim.config.schema import WORDS, refuse_conversion

T = TypeVar("T")


def checked_call(function: Callable[..., T], name: str) -> Callable[..., T]:
    """The function, which then raises `InputError` for unknown and missing arguments, and for
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
    """A value that fits its annotation; a text may stand for it. Raises `InputError`."""
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
        return all(_fits(key, inner[0]) and _fits(own, inner[1]) for key, own in value.items())
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
        known, needed = _fields(cls)
        if args or not kwargs.keys() <= known or not needed <= kwargs.keys():
            _refuse(cls.__name__, known, needed, args, kwargs)
        return type.__call__(cls, *args, **kwargs)


@cache
def _fields(kind: Any) -> tuple[set[str], set[str]]:
    """The arguments that can be given, and the arguments that have to be."""
    own = [entry for entry in fields(kind) if entry.init]
    needed = {entry.name for entry in own if entry.default is entry.default_factory is MISSING}
    return {entry.name for entry in own}, needed


def _refuse(name: str, known: set[str], needed: set[str], args: Any, given: Any) -> None:
    if unknown := [key for key in given if key not in known]:
        raise InputError.unknown(name, f"no field {unknown[0]!r}", unknown[0], sorted(known))
    missing = sorted(needed - given.keys())
    fault = "fields are given by their names" if args else f"{missing[0]} is missing"
    raise InputError(name, fault, f"write {name}({missing[0] if missing else 'name'}=...)")
