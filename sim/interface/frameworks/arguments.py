"""Arguments of a framework and keys of a scenario: one table, read both ways.

Keys are those of `--set`: "plan.tp", "model.layers". An argument that is missing stands for the
framework's own default, so that a key that has it is not written.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from sim.config.errors import InputError
from sim.config.schema import nearest

Given = Mapping[str, tuple[str, ...]]  # the words behind each argument
Keys = Mapping[str, Any]


class Entry(Protocol):
    """One or a few arguments that say one thing."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments that it reads."""

    def read(self, given: Given) -> dict[str, Any]:
        """Values of the arguments, by key. Raises `InputError`."""

    def write(self, keys: Keys) -> dict[str, tuple[str, ...]]:
        """The arguments that say what the keys do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """An argument with a value; `default` is what the framework takes without it, None that the
    key is then left out. One that is `needed` is always written, though reading takes the default.
    """

    argument: str
    key: str
    kind: Callable[[str], Any] = int
    default: Any = None
    needed: bool = False

    @property
    def arguments(self) -> tuple[str, ...]:
        return (self.argument,)

    def read(self, given: Given) -> dict[str, Any]:
        if self.argument not in given:
            return {} if self.default is None else {self.key: self.default}
        return {self.key: value_of(given, self.argument, self.kind)}

    def write(self, keys: Keys) -> dict[str, tuple[str, ...]]:
        value = keys.get(self.key)
        rests = value is None or (value == self.default and not self.needed)
        return {} if rests else {self.argument: (_number(value),)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """An argument whose values, theirs, stand for values of the key, ours."""

    argument: str
    key: str
    values: Mapping[str, Any]
    default: str

    @property
    def arguments(self) -> tuple[str, ...]:
        return (self.argument,)

    def read(self, given: Given) -> dict[str, Any]:
        return {self.key: chosen(given, self.argument, self.values, self.default)}

    def write(self, keys: Keys) -> dict[str, tuple[str, ...]]:
        value = keys.get(self.key)
        if value is None or value == self.values[self.default]:
            return {}
        word = next((word for word, own in self.values.items() if own == value), None)
        if word is None:
            fault = f"no {self.argument} stands for {value!r}"
            raise InputError(self.key, fault, f"take {' or '.join(map(str, self.values.values()))}")
        return {self.argument: (word,)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """An argument without a value: `on` where it is given, `off` (None: nothing) where not. What is
    either on or off may also be said to be off."""

    argument: str
    key: str
    on: Any = True
    off: Any = False

    @property
    def arguments(self) -> tuple[str, ...]:
        return (self.argument,)

    @property
    def switches(self) -> bool:
        """Whether nothing is said where it is not given, but could be."""
        return self.on is True and self.off is None

    def read(self, given: Given) -> dict[str, Any]:
        if self.switches and given.get(self.argument) == ("false",):
            return {self.key: False}
        if self.argument in given:
            return {self.key: self.on}
        return {} if self.off is None else {self.key: self.off}

    def write(self, keys: Keys) -> dict[str, tuple[str, ...]]:
        return {self.argument: ()} if keys.get(self.key) == self.on else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """Arguments of which one means nothing without the other; where `all_needed`, not even as a
    change of what others have said."""

    arguments: tuple[str, ...]
    all_needed: bool = False
    reading: Callable[[Given], dict[str, Any]]
    writing: Callable[[Keys], dict[str, tuple[str, ...]]] = field(default=lambda keys: {})

    def read(self, given: Given) -> dict[str, Any]:
        return self.reading(given)

    def write(self, keys: Keys) -> dict[str, tuple[str, ...]]:
        return self.writing(keys)


def no_sync(name: str) -> Together:
    """Of a framework that sums gradients up before it reduces them in pipelines, and only there
    (`Job.no_sync`): no argument says so, and nothing else is written."""

    def write(keys: Keys) -> dict[str, tuple[str, ...]]:
        piped = keys["plan.pp"] > 1
        if keys["plan.no_sync"] not in (None, piped):
            remedy = f"search no_sync={'yes' if piped else 'no'} only"
            raise InputError("plan.no_sync", f"{name} has no other than its own", remedy)
        return {}

    return Together(arguments=(), reading=lambda given: {}, writing=write)


def _number(value: Any) -> str:
    """A value as an argument; a whole number has no fraction, since many are read by int()."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def value_of(given: Given, argument: str, kind: Callable[[str], Any]) -> Any:
    """The only word behind an argument, as a value. Raises `InputError`."""
    words = given[argument]
    if len(words) != 1:
        fault = f"{len(words)} values" if words else "no value"
        raise InputError(f"argument {argument}", f"{fault} where one is needed", "give one")
    try:
        return kind(words[0])
    except ValueError:
        noun = {int: "whole number", float: "number"}.get(kind, "value")  # type: ignore[call-overload]
        raise InputError(
            f"argument {argument}", f"{words[0]!r} is no {noun}", f"give a {noun}"
        ) from None


def chosen(given: Given, argument: str, values: Mapping[str, Any], default: str) -> Any:
    """The value that the word behind an argument stands for. Raises `InputError` for an unknown
    one."""
    word = value_of(given, argument, str) if argument in given else default
    if word not in values:
        fault = f"{word!r} is not known"
        raise InputError(
            f"argument {argument}", fault, nearest(word, [one for one in values if one])
        )
    return values[word]


def integer(given: Given, argument: str, default: int = 0) -> int:
    """The whole number behind an argument. Raises `InputError`."""
    return int(value_of(given, argument, int)) if argument in given else default


def told(table: Iterable[Entry], given: Given) -> list[Entry]:
    """The entries of which a text says something."""
    return [
        entry
        for entry in table
        if (all if getattr(entry, "all_needed", False) else any)(
            argument in given for argument in entry.arguments
        )
        and entry.arguments
    ]


def read(table: Iterable[Entry], given: Given) -> dict[str, Any]:
    """Values of all arguments; where two entries have the same key, the later one holds."""
    keys: dict[str, Any] = {}
    for entry in table:
        keys |= entry.read(given)
    return keys


def write(table: Iterable[Entry], keys: Keys) -> dict[str, tuple[str, ...]]:
    """The arguments that say what the keys do."""
    given: dict[str, tuple[str, ...]] = {}
    for entry in table:
        given |= entry.write(keys)
    return given
