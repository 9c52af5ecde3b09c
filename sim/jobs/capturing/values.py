"""What does a script get when it reads a value that nobody computes?

It gets the answer of a healthy run if such an answer is known: no number is infinite (`healthy`),
and the script's assertions hold. Any other value is made up. If the script then decides by a
made-up value, a note names the line. `--value train.py:119=true` sets the value at a line.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from math import isfinite, isinf
from typing import Any

from sim.config.errors import InputError
from sim.jobs.capturing.lines import text_of
from sim.jobs.capturing.log import Log
from sim.jobs.capturing.patches import Patches

# A line that makes `_MOST_ASKED` decisions without an update ends the capture. If no value is given
# for the line, less is enough: `_SOON_ASKED` decisions and `_OPERATORS` operators (minutes of the
# host) without an update or a backward pass.
_MOST_ASKED, _SOON_ASKED, _OPERATORS = 20_000, 50, 250_000
_SEVERAL = 4  # progress messages name a line that has made at least this many decisions
_NAMED = 8  # the most lines that a message names
# Results of comparing a tensor with itself, of comparing a tensor with infinity, and of tests.
_ITSELF = {"eq": True, "ge": True, "le": True, "ne": False, "gt": False, "lt": False}
_INFINITY = {"eq": False, "ne": True}
_ASKED = {"isnan": False, "isinf": False, "isposinf": False, "isneginf": False, "isfinite": True}

_COMPARISONS = ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__")
_SUMS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
_ARITHMETIC = (*(f"__{r}{name}__" for name in _SUMS for r in ("", "r")), "__neg__", "__abs__")


def healthy(name: str, args: Sequence[Any], real: Callable[[Any], Any]) -> bool | None:
    """Return the result of an operator if all numbers are finite; None if this does not determine
    the result. `real` returns the content of a tensor, or None if it is unknown.

    >>> healthy("ne", (0.0, float("inf")), lambda tensor: None)
    True
    """
    if name in _ASKED:
        return _ASKED[name]
    first, second = (*args, None, None)[:2]
    if name not in _ITSELF or second is None:
        return None
    if _same(first, second):
        return _ITSELF[name]
    if hasattr(second, "dim"):
        content = None if second.dim() else real(second)
        second = None if content is None else content.item()
    unbounded = isinstance(second, float) and isinf(second)
    if not unbounded:
        return None
    below = bool(second > 0) == (name in ("lt", "le"))
    return _INFINITY.get(name, below)


def _same(left: Any, right: Any) -> bool:
    """Whether two tensors are the same object, or equal views of the same memory."""
    if left is right:
        return True
    if not (hasattr(left, "untyped_storage") and hasattr(right, "untyped_storage")):
        return False
    return all(
        look(left) == look(right)
        for look in (
            lambda tensor: id(tensor.untyped_storage()),
            lambda tensor: (tensor.storage_offset(), tensor.dtype, tensor.shape, tensor.stride()),
        )
    )


def values_of(texts: Sequence[str]) -> dict[str, float]:
    """Return the values that texts set, by line. A text ("train.py:119=false") sets a number that
    the line reads, or the decision that the line makes. Raises `InputError`.

    >>> values_of(["train.py:119=false", "train.py:7=2.5"])
    {'train.py:119': False, 'train.py:7': 2.5}
    """
    found: dict[str, float] = {}
    for text in texts:
        place, _, value = text.rpartition("=")
        words = {"true": True, "false": False}
        try:
            found[place] = words[value] if value in words else float(value)
        except ValueError:
            place = ""
        file, _, line = place.rpartition(":")
        if not file or not line.isdigit():
            remedy = "write FILE:LINE=VALUE, such as train.py:119=false or train.py:7=2.5"
            raise InputError(f"--value {text}", "is not the value of a line", remedy)
    return found


class _Decisions:
    """Counts how `often` each line has decided by unknown values. All counts return to 0 whenever
    `since` (the number of updates, or of updates and backward passes) changes."""

    def __init__(self) -> None:
        self.often = Counter[str]()
        self._since: object = None
        self._seen = 0

    def renew(self, since: object, seen: int) -> None:
        if self._since != since:
            self._since, self._seen = since, seen
            self.often.clear()

    def count(self, place: str, since: object, seen: int) -> tuple[int, int]:
        """Count a decision of a line. Return how many it has made, and how many operators have run
        since the counts began."""
        self.renew(since, seen)
        self.often[place] += 1
        return self.often[place], seen - self._seen


class UnknownValues:
    """Makes up unknown values. `given` holds the user's values by line of the script in `folder`: a
    number for a line that reads a value, true or false for a line that decides. `place` returns the
    running line."""

    def __init__(
        self, log: Log, place: Callable[[], str], given: Mapping[str, float], folder: str
    ) -> None:
        self.log, self.place, self.given, self.folder = log, place, given, folder
        self.asked: dict[str, None] = {}  # lines that needed values, in order
        self.last = ""  # the option that reverses the last decision by a made-up value
        self.made_up = False  # whether the value that was read last is made up
        self._decided_at: set[str] = set()
        self._in_update, self._in_pass = _Decisions(), _Decisions()
        self._kinds = {kind: self._unknown(kind) for kind in (int, float)}

    def of(self, dtype: Any) -> float | int | bool:
        """Return a value of a torch dtype. Raises `InputError` if the user gives a value of another
        kind for the line."""
        self.made_up = True
        place = self.place()
        if str(dtype) == "torch.bool":
            return self._decided(place, False)
        self.asked[place] = None
        given = self.given.get(place)
        number = 1.0 if given is None or isinstance(given, bool) else given
        if dtype.is_floating_point:
            return number
        if not float(number).is_integer():  # true for infinities, too
            fault = "a whole number is read there"
            whole = round(number) if isfinite(number) else 1
            raise InputError(f"--value {place}={number:g}", fault, f"--value {place}={whole}")
        return int(number)

    def install(self, torch: Any, patches: Patches) -> None:
        """Patch `Tensor.item` and `torch.tensor`: comparisons with a made-up number are noted."""
        usual = torch.Tensor.item

        def item(tensor: Any) -> Any:
            self.made_up = False
            found = usual(tensor)
            kind = self._kinds.get(type(found)) if self.made_up else None
            return found if kind is None else kind(found)

        patches.set(torch.Tensor, "item", item)
        _read_tensors(torch, patches)

    def check_used(self, *, alone: bool) -> None:
        """Raise `InputError` if the user gives a value for a line that needs no value, or true or
        false for a line that only reads a number. If other ranks are recorded (not `alone`), they
        may need the value: a line that needs no value here only gets a note."""
        lines = [line for line in self.asked if line != self.log.line(-1)]
        named = ", ".join(lines[:_NAMED]) + ", ..." * (len(lines) > _NAMED)
        for line in sorted(self.given.keys() - self.asked.keys()):
            where, fault = f"--value {line}", "no unknown value is read or decides there"
            if alone:
                raise InputError(where, fault, f"name {named}" if named else "leave it out")
            self.log.notes.number(f"{where}: {fault}")
        read = self.asked.keys() - self._decided_at
        for line in sorted(line for line in read if isinstance(self.given.get(line), bool)):
            remedy = f"write the number, such as --value {line}=0.5"
            fault = "the line reads a number, and decides nothing"
            raise InputError(f"--value {line}={str(self.given[line]).lower()}", fault, remedy)

    def told(self) -> str:
        """Say which line decides again and again without an update; "" for none."""
        self._in_update.renew(self.log.updates, self.log.seen)
        for place, often in self._in_update.often.most_common(1):
            if often >= _SEVERAL and place not in self.given:
                return (
                    f"; without an update, {place} has decided {often:,} times by a value that "
                    f"nobody computes (--value {place}=true or =false)"
                )
        return ""

    def _patience(self, place: str, answer: bool) -> None:
        seen, remedy = self.log.seen, f"try --value {place}={_word(not answer)}"
        often, _ = self._in_update.count(place, self.log.updates, seen)
        lately, done = self._in_pass.count(place, (self.log.updates, self.log.backwards), seen)
        if often >= _MOST_ASKED:
            said = f"{often:,} times without an update"
        elif place not in self.given and lately >= _SOON_ASKED and done >= _OPERATORS:
            said = f"{lately:,} times in {done:,} operators without an update or a backward pass"
            remedy += f", or --value {place}={_word(answer)} to let it go on"
        else:
            return
        fault = f"waits for a value that nobody computes (taken to be {_word(answer)} {said})"
        raise InputError(place, fault, remedy)

    def _decided(self, place: str, found: bool, *, number: bool = False) -> bool:
        """Return the decision of a line, which is `found` by default; `number` says that the line
        compares a made-up number. Raises `InputError` if the given value is of another kind, or if
        the line decides again and again without an update."""
        given = self.given.get(place)
        known = number and place in self.asked  # a given number was read here
        self.asked[place] = None
        self._decided_at.add(place)
        if given is None:
            asserted = text_of(self.folder, place).partition("assert ")
            if asserted[1] and not asserted[0]:
                return not asserted[2].startswith("not ")
            self.last = f"--value {place}={_word(not found)} takes the other way"
            self.log.notes.number(
                f"{place}: decided by a value that nobody computes, taken to be {_word(found)} "
                f"({self.last})"
            )
        elif isinstance(given, bool):
            found = given
        elif not known:
            remedy = f"write --value {place}=true or --value {place}=false"
            raise InputError(f"--value {place}={given:g}", "the line reads no number", remedy)
        self._patience(place, found)
        return found

    def _unknown(self, usual: type) -> type:
        """Return a subclass of `usual` (int or float) that notes the decisions of its comparisons.
        Its arithmetic returns numbers of such a subclass, too."""

        def counted(name: str) -> Any:
            operation = getattr(usual, name)

            def result(number: Any, *others: Any) -> Any:
                found = operation(number, *others)
                kind = self._kinds.get(type(found))
                return found if kind is None else kind(found)

            return result

        def compared(name: str) -> Any:
            operation = getattr(usual, name)

            def result(number: Any, other: Any) -> Any:
                found = operation(number, other)
                if not isinstance(found, bool):
                    return found
                return self._decided(self.place(), found, number=True)

            return result

        inner: dict[str, Any] = {name: compared(name) for name in _COMPARISONS}
        inner |= {name: counted(name) for name in _ARITHMETIC}
        inner["__hash__"] = usual.__hash__
        inner["__reduce__"] = lambda number: (usual, (usual(number),))
        return type(usual.__name__, (usual,), inner)


def _word(answer: bool) -> str:
    return str(answer).lower()


def _read_tensors(torch: Any, patches: Patches) -> None:
    """Patch `torch.tensor` to read tensors in lists by `item()`. Torch reads them past the
    dispatcher (torch/csrc/utils/tensor_new.cpp, `recursive_store`)."""
    usual = torch.tensor

    def values(data: Any, kinds: list[Any]) -> Any:
        if isinstance(data, list | tuple):
            return [values(part, kinds) for part in data]
        if isinstance(data, torch.Tensor) and data.device.type == "cuda":
            kinds.append(data.dtype)
            return data.item()
        return data

    def tensor(data: Any, **rest: Any) -> Any:
        kinds: list[Any] = []
        if isinstance(data, list | tuple):
            data = values(data, kinds)
        if kinds and rest.get("dtype") is None:
            rest["dtype"] = reduce(torch.promote_types, kinds)
        return usual(data, **rest)

    # TorchScript knows functions by their identity (torch/jit/_builtins.py).
    compiled = torch.jit._builtins._get_builtin_table()
    compiled[id(tensor)] = compiled[id(usual)]
    patches.also(lambda: compiled.pop(id(tensor)))
    patches.set(torch, "tensor", tensor)
