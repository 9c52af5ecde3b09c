"""What is the host told where it asks for a value that nobody computes?

A healthy run's answer where there is one (`healthy`: nothing is infinite; what a script asserts
holds). Any other value is made
up, and what the script decides by it is noted with its line. `--value train.py:119=true` says what
the value is there.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from math import isinf
from typing import Any

from sim.config.errors import InputError
from sim.jobs.capturing.lines import text_of
from sim.jobs.capturing.log import Log
from sim.jobs.capturing.patches import Patches

_MOST_ASKED = 20_000  # times on a line within a step
# What comes out where a tensor is compared with itself, and with infinity.
_ITSELF = {"eq": True, "ge": True, "le": True, "ne": False, "gt": False, "lt": False}
_INFINITY = {"eq": False, "ne": True}
_ASKED = {"isnan": False, "isinf": False, "isposinf": False, "isneginf": False, "isfinite": True}

_COMPARISONS = ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__")
_SUMS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
_ARITHMETIC = (*(f"__{r}{name}__" for name in _SUMS for r in ("", "r")), "__neg__", "__abs__")


def healthy(name: str, args: Sequence[Any], real: Callable[[Any], Any]) -> bool | None:
    """What an operator answers where all numbers are finite; None where that does not say it.
    `real` gives the content of a tensor, None where it is unknown.

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


def _same(one: Any, other: Any) -> bool:
    """Whether two tensors are one, perhaps by way of views."""
    if one is other:
        return True
    if not (hasattr(one, "untyped_storage") and hasattr(other, "untyped_storage")):
        return False
    return all(
        look(one) == look(other)
        for look in (
            lambda tensor: id(tensor.untyped_storage()),
            lambda tensor: (tensor.storage_offset(), tensor.dtype, tensor.shape, tensor.stride()),
        )
    )


def values_of(texts: Sequence[str]) -> dict[str, float]:
    """What values are on lines: "train.py:119=false". Raises `InputError`.

    >>> values_of(["train.py:119=false", "train.py:7=2.5"])
    {'train.py:119': 0.0, 'train.py:7': 2.5}
    """
    found = {}
    for text in texts:
        place, _, value = text.rpartition("=")
        words = {"true": 1.0, "false": 0.0}
        try:
            found[place] = words[value] if value in words else float(value)
        except ValueError:
            place = ""
        file, _, line = place.rpartition(":")
        if not file or not line.isdigit():
            remedy = "write one such as train.py:119=false or train.py:7=2.5"
            raise InputError(f"--value {text}", "is no value of a line", remedy)
    return found


class UnknownValues:
    """Makes values up; `given` says what they are, by lines of the script in a `folder`. `place` is
    the line at work."""

    def __init__(
        self, log: Log, place: Callable[[], str], given: Mapping[str, float], folder: str
    ) -> None:
        self.log, self.place, self.given, self.folder = log, place, given, folder
        self.used: set[str] = set()
        self.made_up = False  # the value that was asked for last
        self._asked, self._within = Counter[str](), -1
        self._kinds = {kind: self._unknown(kind) for kind in (int, float)}

    def of(self, dtype: Any) -> float | int | bool:
        """A value of a type of torch."""
        self.made_up = True
        place = self.place()
        given = self._given(place)
        if str(dtype) == "torch.bool":
            return self._decided(place, bool(given), given is not None)
        if dtype.is_floating_point:
            return 1.0 if given is None else given
        return 1 if given is None else int(given)

    def install(self, torch: Any, patches: Patches) -> None:
        """Values that are made up say so when they are compared."""
        usual = torch.Tensor.item

        def item(tensor: Any) -> Any:
            self.made_up = False
            found = usual(tensor)
            kind = self._kinds.get(type(found)) if self.made_up else None
            return found if kind is None else kind(found)

        patches.set(torch.Tensor, "item", item)
        _read_tensors(torch, patches)

    def note_unused(self) -> None:
        """Note the lines at which no value was asked for."""
        for line in sorted(self.given.keys() - self.used):
            self.log.notes.number(f"--value {line}: {line} asks for no unknown value")

    def _patience(self, place: str) -> None:
        if self._within != self.log.updates:
            self._within = self.log.updates
            self._asked.clear()
        self._asked[place] += 1
        if self._asked[place] == _MOST_ASKED:
            fault = f"waits for a value that nobody computes (asked {_MOST_ASKED:,} times)"
            raise InputError(place, fault, f"say what it is, as --value {place}=true")

    def _given(self, place: str) -> float | None:
        given = self.given.get(place)
        if given is not None:
            self.used.add(place)
        return given

    def _decided(self, place: str, answer: bool, given: bool) -> bool:
        self._patience(place)
        if not given:
            asserted = text_of(self.folder, place).partition("assert ")
            if asserted[1] and not asserted[0]:
                return not asserted[2].startswith("not ")
            said, other = str(answer).lower(), str(not answer).lower()
            self.log.notes.number(
                f"{place}: decided by a value that nobody computes, taken to be {said} "
                f"(--value {place}={other} takes the other way)"
            )
        return answer

    def _unknown(self, usual: type) -> type:
        """A kind of numbers that note what is decided by them."""

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
                place = self.place()
                given = self._given(place)
                return self._decided(
                    place, found if given is None else bool(given), bool(given is not None)
                )

            return result

        inner: dict[str, Any] = {name: compared(name) for name in _COMPARISONS}
        inner |= {name: counted(name) for name in _ARITHMETIC}
        inner["__hash__"] = usual.__hash__
        inner["__reduce__"] = lambda number: (usual, (usual(number),))
        return type(usual.__name__, (usual,), inner)


def _read_tensors(torch: Any, patches: Patches) -> None:
    """`torch.tensor` reads the values of tensors in lists one by one, past the dispatcher
    (torch/csrc/utils/tensor_new.cpp, `recursive_store`); here, they are asked for."""
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
