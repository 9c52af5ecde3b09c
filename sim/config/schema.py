"""Validation: plain data from a file becomes a frozen dataclass, or one precise error.

The core of pydantic validates values. This file makes tables into dataclasses, also tables whose
dataclass depends on one of their keys (`Tagged`). It refuses some values that pydantic would
accept, and writes the error messages.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from functools import cache, reduce
from importlib import import_module
from operator import or_
from pathlib import Path
from types import UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from sim.config import gate, plugins
from sim.config.errors import InputError
from sim.config.units import Ge, Gt, Le, Lt, Unit

T = TypeVar("T")

WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


class Tagged:
    """Marks a field whose dataclass depends on one key of its table, such as method = "gossip".

    `classes` gives the dataclasses to choose from, or is the package whose modules define them. The
    chosen dataclass has a field `tag` whose default is the key's value. A table without the key has
    the value `default`. The keys of an `inline` dataclass are in the table around it:
    [[sharing.straggler]] holds its own keys and the keys of its law. A value that ends in .py names
    a file of the user: `of_file` adds its dataclass and returns the value that chooses it.
    """

    def __init__(
        self,
        tag: str,
        classes: Callable[[], Iterable[Any]] | str,
        *,
        inline: bool = False,
        default: str = "",
        of_file: Callable[[Path], str] | None = None,
    ) -> None:
        self.tag, self.classes, self.inline, self.default = tag, classes, inline, default
        self.of_file = of_file

    @property
    def choices(self) -> dict[str, Any]:
        """The dataclasses by the value that chooses them."""
        given = self.classes
        classes = plugins.dataclasses(given, self.tag) if isinstance(given, str) else given()
        return dict(sorted(self._by_value(classes).items()))

    def _by_value(self, classes: Iterable[Any]) -> dict[str, Any]:
        return {kind.__dataclass_fields__[self.tag].default: kind for kind in classes}

    def _near(self, value: str) -> dict[str, Any]:
        """The choices in modules whose source names `value`; other modules are not imported."""
        if not isinstance(self.classes, str):
            return {}
        found = tuple(plugins.naming(self.classes, value))
        return self._by_value(plugins.tagged(found, self.tag))

    def chosen(self, table: Mapping[str, Any], where: str) -> Any:
        """The dataclass of a table. Raises `InputError` where the key chooses none."""
        value = table.get(self.tag, self.default)
        if isinstance(value, str) and value in (near := self._near(value)):
            return near[value]
        choices = self.choices
        if isinstance(value, str) and value in choices:
            return choices[value]
        if not value:
            raise InputError(where, f"{self.tag} is missing", f"known: {', '.join(choices)}")
        shown = gate.shown(value)
        raise InputError.unknown(where, f"{self.tag} = {shown} is unknown", str(value), [*choices])

    def named(self, value: Any) -> Any:
        """The value that chooses a dataclass, where `value` may be a file. Raises `InputError`."""
        is_file = isinstance(value, str | Path) and str(value).endswith(".py")
        return self.of_file(Path(value)) if self.of_file and is_file else value

    def left(self, old: Any, new: Any) -> Collection[str]:
        """The keys of the old value's dataclass that the new value's dataclass lacks."""
        if not all(isinstance(name, str) and name in self.choices for name in (old, new)):
            return ()
        before, now = (annotations_of(self.choices[name]) for name in (old, new))
        return before.keys() - now.keys()

    def foreign(self, key: str, table: Mapping[str, Any]) -> str:
        """The message for a key that the dataclass of a table does not have."""
        owners = [name for name, kind in self.choices.items() if key in annotations_of(kind)]
        other = f" (it belongs to {' and '.join(owners)})" if owners else ""
        return f'unknown key {key!r} for {self.tag} = "{table.get(self.tag, self.default)}"{other}'


class Choice:
    """Marks a key whose value decides which other keys its table may have. From an old and a new
    value, `left` finds the keys that belong only to the old value."""

    def __init__(self, left: Callable[[Any, Any], Collection[str]]) -> None:
        self.left = left


class Signed:
    """Marks a number that may be negative or zero, whatever its default."""


class Short:
    """Marks a field that may be written in short; the result of `spelled_out` is validated."""

    def __init__(self, spelled_out: Callable[[Any], Any]) -> None:
        self.spelled_out = spelled_out


class Section:
    """Marks a table that few files have: its dataclass "module:Class" is loaded when needed."""

    def __init__(self, home: str) -> None:
        self.home = home

    @property
    def table(self) -> Any:
        """The dataclass of the table."""
        module, _, name = self.home.partition(":")
        return getattr(import_module(module), name)


def section(home: str) -> Any:
    """The annotation of a table that few files have, for the dataclass "module:Class"."""
    return Annotated[Any, Section(home)]


def validate(data: Any, kind: type[T], where: str) -> T:
    """Turn plain data into the frozen dataclass `kind`.

    Tables become dataclasses one by one, the innermost first, so only annotations of given keys are
    evaluated. Unknown keys are refused, with the nearest known key. Values of another type than the
    key's are refused where pydantic would convert them. Raises `InputError`.
    """
    shape: Any = kind
    made: T = _admitted(_prepared(data, shape, where), shape, where)
    return made


def validated_field(kind: Any, key: str, value: Any, where: str) -> Any:
    """One value of a dataclass, validated as in a file; numpy's scalars count as numbers.

    Raises `InputError`.
    """
    plain = value.item() if getattr(value, "shape", None) == () else value
    prepared = _prepared_values({key: plain}, kind, where)[key]
    return _admitted(prepared, annotations_of(kind)[key], where, key)


def _made(values: Mapping[str, Any], shape: Any, where: str) -> Any:
    """The dataclass of a table with prepared values; faults are reported in the order of its
    fields. Raises `InputError`."""
    given = {}
    known = annotations_of(shape)
    for key in known:
        if key in values:
            given[key] = _admitted(values[key], known[key], where, key)
        elif key in _needed(shape):
            raise InputError(where, f"{key} is missing", f"add {key} = ...")
    try:
        return shape(**given)
    except ValueError as error:
        raise _faults().refusal(error, where) from None


def _faults() -> Any:
    from sim.config import faults  # most values have none

    return faults


@cache
def _needed(shape: Any) -> frozenset[str]:
    """The fields of a dataclass that have no default."""
    return frozenset(
        field.name for field in fields(shape) if field.default is field.default_factory is MISSING
    )


def _admitted(value: Any, kind: Any, where: str, *key: str) -> Any:
    """A prepared value, validated by its annotation; only this function uses pydantic. Raises
    `InputError`."""
    if type(value) is kind:
        return value
    from pydantic_core import ValidationError

    try:
        return _validator(kind).validate_python(value)
    except ValidationError as error:
        raise _faults().first_fault(error, where, *key) from None


@cache
def _validator(kind: Any) -> Any:
    from pydantic_core import SchemaValidator

    return SchemaValidator(_core(kind))


def _core(kind: Any) -> dict[str, Any]:
    """The schema of an annotation for pydantic's core. Tables have become dataclasses before."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _marked(_core(inner[0]) if tagged_in(kind) is None else _instance(inner[0]), inner)
    if origin is Literal:
        return {"type": "literal", "expected": [*inner]}
    if origin in (Union, UnionType):
        choices = [_core(part) for part in inner if part is not type(None)]
        schema = choices[0] if len(choices) == 1 else {"type": "union", "choices": choices}
        return {"type": "nullable", "schema": schema} if type(None) in inner else schema
    if origin is tuple:
        items = [_core(part) for part in inner if part is not Ellipsis]
        schema = {"type": "tuple", "items_schema": items}
        return schema | ({"variadic_item_index": 0} if Ellipsis in inner else {})
    if origin is list:
        return {"type": "list", "items_schema": _core(inner[0])}
    if origin in (dict, Mapping):
        keys, values = map(_core, inner)
        return {"type": "dict", "keys_schema": keys, "values_schema": values}
    if kind is Any:
        return {"type": "any"}
    return {"type": kind.__name__} if kind in WORDS else _instance(kind)


def _instance(kind: Any) -> dict[str, Any]:
    return {"type": "is-instance", "cls": kind}


def _marked(schema: dict[str, Any], marks: Iterable[Any]) -> dict[str, Any]:
    """A schema with the bounds of an annotation, or the schema of a quantity with a unit."""
    for mark in marks:
        if isinstance(mark, Unit):
            return {
                "type": "function-plain",
                "function": {"type": "no-info", "function": mark.read},
            }
        if isinstance(mark, Ge | Gt | Le | Lt):
            schema = schema | asdict(mark)
    return schema


def _prepared(data: Any, kind: Any, where: str, key: str = "") -> Any:
    """The data with tables turned into their dataclasses. Refuses unknown keys, and values that
    pydantic would convert."""
    reads = _reading(kind)
    if reads.short:
        return _prepared(_spelled_out(data, reads.short, where, key), reads.long, where, key)
    if isinstance(data, list | tuple):
        return [_prepared_item(item, kind, where, key, i) for i, item in enumerate(data)]
    if isinstance(data, dict):
        inside = _within(where, key)
        if reads.values is not None:
            return {name: _prepared(data[name], reads.values, inside, name) for name in data}
        if reads.tagged is not None:
            table = reads.tagged.chosen(data, inside)
            _refuse_unknown(data, annotations_of(table), inside, reads.tagged)
            return validate(data, table, inside)
        if reads.table is not None:
            return _made(_prepared_values(data, reads.table, inside), reads.table, inside)
    is_made = is_dataclass(data)
    if reads.tagged is not None and data is not None and not is_made:
        fault = f"{key} = {gate.shown(data)} is not a table"
        raise InputError(where, fault, f"write a table with {reads.tagged.tag} = ...")
    if reads.table is None or not is_made:
        refuse_conversion(data, kind, where, key)
    return data


class _Reading(NamedTuple):
    """How values of an annotation are read. `short` spells out a short form, and `long` is the
    annotation of the result. A table has the dataclass `table`, or is `tagged`. `values` is the
    annotation of a mapping's values."""

    short: Short | None
    long: Any
    tagged: Tagged | None
    table: Any
    values: Any


@cache
def _reading(kind: Any) -> _Reading:
    inner = get_args(kind)
    return _Reading(
        short=_short_of(kind),
        long=inner[0] if inner else kind,
        tagged=tagged_in(kind),
        table=dataclass_in(kind),
        values=inner[1] if get_origin(kind) in (dict, Mapping) else None,
    )


def _prepared_item(item: Any, kind: Any, where: str, key: str, number: int) -> Any:
    """A prepared item of a list; errors name a table in a list by its number."""
    return _prepared(item, kind, where, f"{key}.{number}" if isinstance(item, dict) else key)


def _short_of(kind: Any) -> Any:
    """The mark of an annotation whose values may be written in short, or None."""
    marks = get_args(kind)[1:] if get_origin(kind) is Annotated else ()
    return next((mark for mark in marks if isinstance(mark, Short)), None)


def _spelled_out(data: Any, short: Short, where: str, key: str) -> Any:
    """The full form of a value in short form. Raises `InputError`."""
    try:
        return short.spelled_out(data)
    except ValueError as error:
        raise _faults().refusal(error, where, key) from None


def _prepared_values(table: dict[str, Any], shape: Any, where: str) -> dict[str, Any]:
    """The prepared values of a table; keys of an inline dataclass are gathered into it."""
    known, inline = annotations_of(shape), inline_field(shape)
    if inline is None:
        _refuse_unknown(table, known, where)
        _refuse_signs(table, shape, where)
        return {key: _prepared(value, known[key], where, key) for key, value in table.items()}
    name, tagged = inline
    choice = tagged.chosen(table, where)
    outer = [key for key in known if key != name]
    _refuse_unknown(table, [*outer, *annotations_of(choice)], where, tagged)
    _refuse_signs(table, shape, where)
    prepared = {key: _prepared(table[key], known[key], where, key) for key in table if key in outer}
    gathered = {key: value for key, value in table.items() if key not in outer}
    return prepared | {name: validate(gathered, choice, where)}


@cache
def inline_field(shape: Any) -> tuple[str, Tagged] | None:
    """The name and the mark of the field whose keys are in the table around it."""
    marked = ((name, tagged_in(kind)) for name, kind in annotations_of(shape).written.items())
    return next(((name, tagged) for name, tagged in marked if tagged and tagged.inline), None)


def _refuse_unknown(
    table: Mapping[str, Any], known: Iterable[str], where: str, tagged: Tagged | None = None
) -> None:
    for key in table:
        if key not in known:
            fault = tagged.foreign(key, table) if tagged else f"unknown key {key!r}"
            raise InputError.unknown(where, fault, key, [*known])


def _refuse_signs(table: Mapping[str, Any], shape: Any, where: str) -> None:
    """Raise `InputError` for a number below zero, or for a zero that is not the key's default. A
    field that admits other numbers has bounds of its own, or is `Signed`."""
    for key, value in table.items():
        if type(value) not in (int, float) or key not in (floors := _floors(shape)):
            continue
        if value < 0 or (value == 0 and floors[key]):
            must, words = _SIGNS[floors[key]]
            fault = f"{key} = {gate.shown(value)} must {must}"
            raise InputError(where, fault, f"set {key} {words} 0")


_SIGNS = {True: ("be positive", "above"), False: ("not be negative", "at least")}


@cache
def _floors(shape: Any) -> dict[str, bool]:
    """For each number field without bounds of its own: whether it must be above zero."""
    floors = {}
    for field in fields(shape):
        kind = annotations_of(shape).written.get(field.name)
        if _plain_types(kind) & {int, float} and not _is_bounded(kind):
            default = field.default
            given = isinstance(default, int | float) and not isinstance(default, bool)
            floors[field.name] = default is MISSING or (given and default != 0)
    return floors


def _is_bounded(kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return True
    if get_origin(kind) is Annotated:
        return any(isinstance(mark, Ge | Gt | Signed) for mark in get_args(kind)[1:])
    return any(map(_is_bounded, get_args(kind)))


class Annotations(Mapping[str, Any]):
    """Annotations by field; modules of sections are loaded when their field is looked up."""

    def __init__(self, written: Mapping[str, Any]) -> None:
        self.written = written
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, key: str) -> Any:
        if key not in self._loaded:
            self._loaded[key] = _loaded(self.written[key])
        return self._loaded[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.written)

    def __len__(self) -> int:
        return len(self.written)


def _loaded(kind: Any) -> Any:
    """An annotation with the dataclass of its section."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated and isinstance(inner[1], Section):
        return inner[1].table
    return reduce(or_, map(_loaded, inner)) if origin in (Union, UnionType) else kind


@cache
def annotations_of(shape: Any) -> Annotations:
    """The fields of a dataclass that can be given, with their annotations."""
    hints = get_type_hints(shape, include_extras=True)
    return Annotations({field.name: hints[field.name] for field in fields(shape) if field.init})


def _within(where: str, key: str) -> str:
    """The place of a table: "FILE, plan", or "FILE, plan.gradients" for a table in a table."""
    return f"{where}{'.' if ', ' in where else ', '}{key}" if key else where


def refuse_conversion(value: Any, kind: Any, where: str, key: str) -> None:
    """Raise `InputError` for a value that is not of the plain type that its annotation says."""
    wanted = _plain_types(kind)
    if isinstance(value, int | float) and (fault := gate.fault_of(value)):
        raise InputError(where, f"{key} = {gate.shown(value)} {fault}", "write the true value")
    if not wanted or type(value) in wanted:
        return
    named = wanted - {int} if float in wanted else wanted
    words = " or ".join(word for plain, word in WORDS.items() if plain in named)
    fault = f"{key} = {gate.shown(value)} is not {words}"
    raise InputError(where, fault, import_module("sim.config.meant").remedy(key, value, wanted))


@cache
def _plain_types(kind: Any) -> frozenset[type]:
    """The types of bool, int, float and str that a plain annotation admits."""
    if get_origin(kind) is Annotated:
        plain, *marks = get_args(kind)
        if any(isinstance(mark, Unit) for mark in marks):
            return frozenset()
        return _plain_types(plain)
    if get_origin(kind) is Literal:
        return frozenset(map(type, get_args(kind)))
    if get_origin(kind) in (Union, UnionType):
        parts = [_plain_types(part) for part in get_args(kind) if part is not type(None)]
        return frozenset().union(*parts) if all(parts) else frozenset()
    if get_origin(kind) is tuple:
        return _plain_types(get_args(kind)[0])
    return frozenset((float, int) if kind is float else {kind} & WORDS.keys())


@cache
def dataclass_in(kind: Any) -> Any:
    """The dataclass that an annotation such as `tuple[Straggler, ...]` or `Plan | None` holds."""
    if _is_table(kind):
        return kind
    return next((shape for part in get_args(kind) if (shape := dataclass_in(part))), None)


def _is_table(kind: Any) -> bool:
    """Whether an annotation is a dataclass; marks of bounds are instances of dataclasses."""
    return isinstance(kind, type) and is_dataclass(kind)


@cache
def tagged_in(kind: Any) -> Tagged | None:
    """The mark that an annotation such as `tuple[Annotated[Law, Tagged(...)], ...]` holds."""
    if isinstance(kind, Tagged):
        return kind
    return next((tagged for part in get_args(kind) if (tagged := tagged_in(part))), None)
