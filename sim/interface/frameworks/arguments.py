"""Tables between arguments of a framework and keys of a scenario, read in both directions.

Keys have the form of `--set`: "plan.tp", "model.layers". A missing argument stands for the
framework's default, so a key with the default value is not written.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from sim.config.dataclass import dataclass
from sim.config.errors import InputError

Given = Mapping[str, tuple[str, ...]]  # the words that follow each argument
Keys = Mapping[str, Any]
BOOLEANS = {"true": True, "false": False}


class Entry(Protocol):
    """An argument, or a few arguments with a joint meaning."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of the arguments that this entry reads."""

    def read(self, given: Given) -> dict[str, Any]:
        """Return the values of the arguments by key. Raises `InputError`."""

    def write(self, keys: Keys) -> dict[str, tuple[str, ...]]:
        """Return the arguments that express the keys. Raises `InputError`."""


@dataclass(frozen=True, slots=True)
class _Argument:
    argument: str
    key: str

    @property
    def arguments(self) -> tuple[str, ...]:
        return (self.argument,)


@dataclass(frozen=True, slots=True)
class Value(_Argument):
    """An argument with a value. Without the argument the framework takes `default`; if `default`
    is None, the key is left out. A `needed` argument is written even if it has the default.
    """

    kind: Callable[[str], Any] = int
    default: Any = None
    needed: bool = False

    def read(self, given: Given) -> dict[str, Any]:
        if self.argument not in given:
            return {} if self.default is None else {self.key: self.default}
        return {self.key: value_of(given, self.argument, self.kind)}

    def write(self, keys: Keys) -> dict[str, tuple[str, ...]]:
        value = keys.get(self.key)
        rests = value is None or (value == self.default and not self.needed)
        return {} if rests else {self.argument: (_number(value),)}


@dataclass(frozen=True, slots=True)
class Choice(_Argument):
    """An argument whose word stands for a value of the key (`values`); the value None leaves the
    key out. A `needed` argument is written even if its word is the default."""

    values: Mapping[str, Any]
    default: str
    needed: bool = False

    def read(self, given: Given) -> dict[str, Any]:
        value = chosen(given, self.argument, self.values, self.default)
        return {} if value is None else {self.key: value}

    def write(self, keys: Keys) -> dict[str, tuple[str, ...]]:
        value = keys.get(self.key)
        if value is None or (value == self.values[self.default] and not self.needed):
            return {}
        word = next((word for word, entry in self.values.items() if entry == value), None)
        if word is None:
            known = " or ".join(str(entry) for entry in self.values.values() if entry is not None)
            raise InputError(self.key, f"no {self.argument} stands for {value!r}", f"take {known}")
        return {self.argument: (word,)}


@dataclass(frozen=True, slots=True)
class Flag(_Argument):
    """An argument without a value: the key is `on` if the argument is given, else `off` (None: the
    key is left out). If `on` is True and `off` None, the argument may also be given as false."""

    on: Any = True
    off: Any = False

    @property
    def switches(self) -> bool:
        """Whether the flag may be given as false."""
        return self.on is True and self.off is None

    def read(self, given: Given) -> dict[str, Any]:
        if self.switches and given.get(self.argument) == ("false",):
            return {self.key: False}
        if self.argument in given:
            return {self.key: self.on}
        return {} if self.off is None else {self.key: self.off}

    def write(self, keys: Keys) -> dict[str, tuple[str, ...]]:
        return {self.argument: ()} if keys.get(self.key) == self.on else {}


@dataclass(frozen=True, slots=True)
class Together:
    """Arguments that have a meaning only together. With `all_needed`, a text that changes a recipe
    must give all these arguments, or they are ignored."""

    arguments: tuple[str, ...]
    reading: Callable[[Given], dict[str, Any]]
    writing: Callable[[Keys], dict[str, tuple[str, ...]]] = lambda keys: {}
    all_needed: bool = False

    def read(self, given: Given) -> dict[str, Any]:
        return self.reading(given)

    def write(self, keys: Keys) -> dict[str, tuple[str, ...]]:
        return self.writing(keys)


def offload(argument: str, fault: str) -> Together:
    """Return the argument of FSDP's CPU offload: parameters, gradients and states, or nothing. It
    refuses plans that offload anything else, with the message `fault`."""

    def read(given: Given) -> dict[str, Any]:
        if not chosen(given, argument, BOOLEANS, "false"):
            return {}
        return {"plan.offload.optimizer": 1.0, "plan.offload.parameters": 1.0}

    def write(keys: Keys) -> dict[str, tuple[str, ...]]:
        own = keys["plan.offload"]
        if own and (not own.optimizer == own.parameters == 1.0 or own.activations or own.nvme):
            raise InputError("plan.offload", fault, "leave it out, or offload states")
        return {argument: ("true",)} if own else {}

    return Together((argument,), read, write)


def data_parallel_alone(outside: str) -> Together:
    """Return the rule of a framework that only divides samples. It refuses plans with tp, pp, cp or
    ep above 1. The message is "tp = 2 is", followed by the words `outside`."""

    def write(keys: Keys) -> dict[str, tuple[str, ...]]:
        for key in ("tp", "pp", "cp", "ep"):
            if keys[f"plan.{key}"] > 1:
                fault = f"{key} = {keys[f'plan.{key}']} is {outside}"
                raise InputError("plan", fault, f"set {key} = 1")
        return {}

    return Together((), lambda given: {}, write)


def no_sync(name: str) -> Together:
    """Return the rule of a framework that, in pipelines and only there, accumulates gradients
    before it reduces them. The rule has no argument; it refuses other values of `plan.no_sync`."""

    def write(keys: Keys) -> dict[str, tuple[str, ...]]:
        piped = keys["plan.pp"] > 1
        if keys["plan.no_sync"] not in (None, piped):
            remedy = f"search no_sync={'yes' if piped else 'no'} only"
            raise InputError("plan.no_sync", f"{name} has only its own rule", remedy)
        return {}

    return Together((), lambda given: {}, write)


def _number(value: Any) -> str:
    """Return a value as an argument. A whole number has no fraction, since frameworks often read
    arguments by int()."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def value_of(given: Given, argument: str, kind: Callable[[str], Any]) -> Any:
    """Return the value of an argument that has a single word. Raises `InputError`."""
    words = given[argument]
    if len(words) != 1:
        fault = f"{len(words)} values" if words else "no value"
        raise InputError(f"argument {argument}", f"{fault} where one is needed", "give one value")
    try:
        return kind(words[0])
    except ValueError:
        noun = {int: "whole number", float: "number"}.get(kind, "value")  # type: ignore[call-overload]
        raise InputError(
            f"argument {argument}", f"{words[0]!r} is no {noun}", f"give a {noun}"
        ) from None


def chosen(given: Given, argument: str, values: Mapping[str, Any], default: str) -> Any:
    """Return the value that an argument's word stands for. Raises `InputError` for an unknown
    word."""
    word = value_of(given, argument, str) if argument in given else default
    if word not in values:
        fault = f"{word!r} is not known"
        raise InputError.unknown(f"argument {argument}", fault, word, list(filter(None, values)))
    return values[word]


def integer(given: Given, argument: str, default: int = 0) -> int:
    """Return the whole number of an argument. Raises `InputError`."""
    return int(value_of(given, argument, int)) if argument in given else default


def told(table: Iterable[Entry], given: Given) -> list[Entry]:
    """Return the entries whose arguments are given: any argument, or all if `all_needed`."""
    found = []
    for entry in table:
        enough = all if getattr(entry, "all_needed", False) else any
        if entry.arguments and enough(argument in given for argument in entry.arguments):
            found.append(entry)
    return found


def read(table: Iterable[Entry], given: Given) -> dict[str, Any]:
    """Return the values of all arguments by key. If two entries have the same key, the later entry
    wins."""
    keys: dict[str, Any] = {}
    for entry in table:
        keys |= entry.read(given)
    return keys


def write(table: Iterable[Entry], keys: Keys) -> dict[str, tuple[str, ...]]:
    """Return the arguments that express the keys."""
    given: dict[str, tuple[str, ...]] = {}
    for entry in table:
        given |= entry.write(keys)
    return given
