"""A method of the user's own: the only subclass of `Sharing` in a Python file, with checks."""

from inspect import get_annotations, isabstract, isfunction, signature
from pathlib import Path
from types import ModuleType
from typing import get_args

from sim.config.added_file import add_file
from sim.config.errors import InputError
from sim.config.schema import annotations_of
from sim.jobs.sharing.plan import Sharing, methods, methods_of


def method_of(path: Path) -> str:
    """The name of the method that a Python file adds, for this process. Raises `InputError`."""

    def only(module: ModuleType) -> str:
        named, where = methods_of(module), str(path)
        if len(named) != 1:
            fault = f"has {len(named)} subclasses of Sharing (from sim.jobs.sharing.plan)"
            raise InputError(where, fault, 'write one (docs/sharing.md, "A method of your own")')
        name = _name_of(named[0], where)
        _check_members(named[0], where)
        others = [other for other in methods() if other.__module__ != module.__name__]
        if any(name in _names_of(other) for other in others):
            fault = f"the method {name!r} exists already"
            raise InputError(where, fault, "give it another name")
        return name

    return add_file("sim.jobs.sharing.methods", path, only)


def _names_of(kind: type[Sharing]) -> tuple[str, ...]:
    return get_args(get_annotations(kind).get("method"))


def _name_of(kind: type[Sharing], where: str) -> str:
    """The name by which a table chooses a method. Raises `InputError` for a method without a
    name."""
    fields = kind.__dict__.get("__dataclass_fields__", Sharing.__dataclass_fields__)
    name, written = fields["method"].default, _names_of(kind)
    if not isinstance(name, str) or "method" not in get_annotations(kind):
        fault = f"{kind.__name__} has no name of its own"
        remedy = 'make it a dataclass with method: Literal["mine"] = "mine"'
        raise InputError(where, fault, remedy)
    if written and name not in written:
        fault = f"method is {name!r}, but its Literal has {', '.join(map(repr, written))}"
        raise InputError(where, fault, "write the same name in both places")
    return name


def _check_members(kind: type[Sharing], where: str) -> None:
    """Raise `InputError` if `start` is missing or a key redefines a key of all methods. Raise it
    also if a function takes other arguments than the function that it replaces."""
    if isabstract(kind):
        fault = f"{kind.__name__} has no start(self, pool)"
        raise InputError(where, fault, "write start, which calls pool.train(loop)")
    base = next(parent for parent in kind.__mro__[1:] if parent.__module__ != kind.__module__)
    for key in {*get_annotations(kind)} & {*annotations_of(base)} - {"method"}:
        if annotations_of(kind)[key] != annotations_of(base)[key]:
            fault = f"{key} is a key of all methods of {base.__name__}"
            raise InputError(where, fault, "choose another name")
    for name, function in vars(kind).items():
        replaced = getattr(base, name, None)
        if not name.startswith("__") and isfunction(function) and isfunction(replaced):
            given = list(signature(replaced).parameters)
            try:
                signature(function).bind(*given)
            except TypeError:
                fault = f"{kind.__name__}.{name} takes {signature(function)}"
                remedy = f"write def {name}({', '.join(given)})"
                raise InputError(where, fault, remedy) from None
