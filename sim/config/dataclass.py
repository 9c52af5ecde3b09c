"""A replacement for the standard `dataclass` that defines and makes frozen dataclasses faster.

Each start of the command defines some two hundred dataclasses. The standard decorator compiles six
functions for each, which takes as long as loading numpy. Here only `__init__` is compiled; all
classes share the other methods. This file can go when the standard decorator is as quick.
"""

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from functools import partial
from operator import attrgetter
from reprlib import recursive_repr
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

_OWN = {"frozen", "eq", "slots", "kw_only"}

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(kind: type | None = None, /, **options: bool) -> Any:
        """Like `dataclasses.dataclass`, with the same comparison, hash, text and pickle of frozen
        classes. The standard decorator makes classes with other options than `_OWN`."""
        if not options.get("frozen") or not options.keys() <= _OWN:
            return dataclasses.dataclass(kind, **options)
        return partial(_frozen, **options) if kind is None else _frozen(kind, **options)


def _frozen(kind: Any, *, frozen: bool, eq: bool = True, **options: bool) -> Any:
    """`kind` as a frozen dataclass. The standard decorator is told `frozen` only where `kind`
    inherits from a dataclass, because only frozen classes may inherit from frozen classes."""
    members = vars(kind).copy()
    inherits = any(hasattr(base, "__dataclass_params__") for base in kind.__mro__[1:])
    made = dataclasses.dataclass(init=False, repr=False, eq=False, frozen=inherits, **options)(kind)
    made.__dataclass_params__.frozen = frozen
    methods = {
        "__init__": _initialiser(made), "__repr__": _repr,
        "__setattr__": _refuse_setting, "__delattr__": _refuse_deleting,
    }  # fmt: skip
    if eq:
        compared = [field for field in fields(made) if field.compare]
        hashed = [f for f in fields(made) if (f.compare if f.hash is None else f.hash)]
        methods |= {"__eq__": _equality(_values(compared)), "__hash__": _hash(_values(hashed))}
    if options.get("slots"):
        methods |= {"__getstate__": _state, "__setstate__": _set_state}
    for name, method in methods.items():
        if members.get(name) is None:
            setattr(made, name, method)
    made.__doc__ = members.get("__doc__")
    for member in members.values():
        _lies_in(kind, made, member)
    return made


def _lies_in(written: Any, made: Any, member: Any) -> None:
    """Let `super()` in a method of the `written` class refer to `made`, its copy with slots."""
    for name in ("fget", "func", "__func__"):  # properties, class methods
        member = getattr(member, name, member)
    names = getattr(getattr(member, "__code__", None), "co_freevars", ())
    if "__class__" in names:
        cell = member.__closure__[names.index("__class__")]
        if cell.cell_contents is written:  # a method borrowed from another class has that class
            cell.cell_contents = made


class _Unset:
    """The default of a field whose value a factory makes."""

    def __repr__(self) -> str:
        return "<factory>"


_unset = _Unset()


def _initialiser(kind: Any) -> Callable[..., None]:
    """The `__init__` of a class."""
    known: dict[str, Any] = {"_unset": _unset, "_set": object.__setattr__}
    lines = [_setting(kind, field, known) for field in fields(kind)]
    if hasattr(kind, "__post_init__"):
        lines.append("self.__post_init__()")
    given = sorted((field for field in fields(kind) if field.init), key=_is_named)
    names = [f.name if _needed(f) else f"{f.name}=_default_{f.name}" for f in given]
    named = sum(map(_is_named, given))
    if named:
        names.insert(len(names) - named, "*")
    body = "\n ".join(filter(None, lines)) or "pass"
    exec(f"def __init__({', '.join(['self', *names])}):\n {body}", known)
    made: Callable[..., None] = known["__init__"]
    made.__qualname__, made.__module__ = f"{kind.__qualname__}.__init__", kind.__module__
    made.__annotations__ = {field.name: field.type for field in given} | {"return": None}
    return made


def _is_named(field: Field[Any]) -> bool:
    return bool(field.kw_only)


def _needed(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _setting(kind: Any, field: Field[Any], known: dict[str, Any]) -> str:
    """The line of `__init__` that sets a field past `__setattr__`; adds its names to `known`."""
    name, value = field.name, field.name
    known[f"_default_{name}"] = field.default
    if field.default_factory is not MISSING:
        known[f"_default_{name}"] = _unset
        known[f"_make_{name}"] = field.default_factory
        value = f"_make_{name}()"
        if field.init:
            value = f"{value} if {name} is _unset else {name}"
    elif not field.init:
        value = f"_default_{name}"
    if not field.init and _needed(field):
        return ""  # `__post_init__` sets it
    slot = getattr(kind, name, None)
    if isinstance(slot, MemberDescriptorType):
        known[f"_set_{name}"] = slot.__set__
        return f"_set_{name}(self, {value})"
    return f"_set(self, {name!r}, {value})"


def _values(chosen: Iterable[Field[Any]]) -> Callable[[Any], tuple[Any, ...]]:
    """A function that reads the values of the `chosen` fields."""
    names = [field.name for field in chosen]
    if len(names) > 1:
        return attrgetter(*names)
    return lambda thing: tuple(getattr(thing, name) for name in names)


def _equality(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, Any], bool]:
    def equal(self: Any, other: Any) -> bool:
        return values(self) == values(other) if type(self) is type(other) else NotImplemented

    return equal


def _hash(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], int]:
    return lambda self: hash(values(self))


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


def _refuse_setting(self: Any, name: str, value: Any) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deleting(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")
