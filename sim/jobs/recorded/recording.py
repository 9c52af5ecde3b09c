"""What did a rank do in a step? Operators, streams, events, collectives and memory."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from math import prod
from typing import Annotated, Any, Generic, Literal, TypeVar

from sim.config.bounds import Ge
from sim.config.dataclass import dataclass
from sim.hardware.kernels.dispatch import Phase
from sim.program.actions import Action, Kind

VERSION = 4
VERSIONS = (1, 2, 3, VERSION)  # 1 had no passes, 2 no `record_stream`, 3 no `places`

EventKind = Literal["kernel", "collective", "send", "recv", "done", "record", "wait", "sync"]
Index = Annotated[int, Ge(0)]
Reference = Annotated[int, Ge(-1)]  # an index, or -1 for none

PARTS = ("parameters", "gradients", "optimizer", "activations", "temporary", "buffers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """An operand: torch's name of its type ("bfloat16"), the bytes of an element, the shape, and
    how many distinct elements it has if it is broadcast (else -1)."""

    dtype: str
    width: Annotated[float, Ge(0)]
    shape: tuple[Index, ...]
    elements: Reference = -1

    @property
    def bytes(self) -> float:
        """Bytes that it covers; broadcast elements count once."""
        return self.width * (prod(self.shape) if self.elements < 0 else self.elements)


def covered(shape: Sequence[int], strides: Sequence[int]) -> int:
    """The `elements` of a `Tensor`.

    >>> covered((4, 3), (3, 1)), covered((4, 3), (0, 1))
    (-1, 3)
    """
    elements = prod(n for n, stride in zip(shape, strides, strict=True) if stride)
    return -1 if elements == prod(shape) else elements


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """An operator of torch ("aten.mm") with its tensors; lists are flattened. `flags` are other
    arguments that its kernel depends on, `written` its bytes."""

    name: str
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    written: Annotated[float, Ge(0)] = 0.0
    flags: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Ranks of a process group: `first` and, of each axis along which it extends, stride and size.

    >>> Group(first=1, axes=((2, 2), (8, 2))).ranks
    (1, 3, 9, 11)
    """

    first: Index
    axes: tuple[tuple[Index, Index], ...]

    @property
    def ranks(self) -> tuple[int, ...]:
        found: tuple[int, ...] = (self.first,)
        for stride, size in self.axes:
            found = tuple(rank + stride * i for i in range(size) for rank in found)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """A `microbatch` on its way through a `piece` of a model that a pipeline cuts up: forward, or a
    kind of backward pass (`sim.program.actions`)."""

    kind: Kind
    microbatch: Index
    piece: Index = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An action of the host on a `stream` (0: the default stream).

    "kernel" launches an `operator`: `again` by recomputation; it is the first to read the results
    of the collectives `reads`; a CUDA `graph` launches it (0: the host does); the host has made so
    many `views` since the kernel before.

    "collective" is of a `group`; "send" and "recv" name the other rank (`peer`). `bytes` are of the
    whole tensor. "done" and `reads` refer to a collective by its `mark`: "done" makes the stream
    wait for it. A `blocking` collective holds up its stream by itself.

    No gradient flows through a forward kernel `aside`: the script has switched gradients off, or
    none of its operands has one.

    "record" sets a `mark` on a stream, "wait" makes a stream wait for a mark, "sync" the host for
    the stream. `line` is the line of the script, `within` the pass of a pipeline's schedule.
    """

    kind: EventKind
    stream: Index = 0
    phase: Phase = "forward"
    again: bool = False
    operator: Reference = -1
    line: Reference = -1
    within: Reference = -1
    name: str = ""
    group: Reference = -1
    peer: Index = 0
    bytes: Annotated[float, Ge(0)] = 0.0
    mark: Index = 0
    reads: tuple[Index, ...] = ()
    graph: Index = 0
    views: Index = 0
    blocking: bool = False
    aside: bool = False


@dataclass(frozen=True, slots=True)
class Allocation:
    """A block of memory that is taken, given back (0 `bytes`) or also used on this stream (-1:
    `Tensor.record_stream`), just before an event (-1: before the step).

    `part` is an index of `PARTS`. Block 0 stands for all cached blocks, given back to the device
    (`empty_cache`).
    """

    event: int
    block: int
    bytes: int
    stream: int
    line: int
    part: int


@dataclass(frozen=True, kw_only=True)
class Recording:
    """The step of one rank. Events refer to `operators`, `groups`, `lines` ("train.py:12") and
    `passes` by number. `texts` are what the lines say, if that was recorded.

    `parameters` counts the model's. `samples` are those that the rank learns from, as its loader or
    whoever recorded it says (0: nobody). `places` are the lines that make the "optimizer" and wrap
    the model for several ranks ("wrapper"), and that "call" the model. `memory` is in the host's
    order and begins with the script. `allocator` has the script's settings of torch's caching
    allocator, `gpu` names the device that the script saw. `notes` are for whoever reads a result.
    """

    version: int = VERSION
    script: str
    arguments: tuple[str, ...] = ()
    torch: str
    world: Annotated[int, Ge(1)]
    rank: Index = 0
    parameters: Index = 0
    samples: Index = 0
    allocator: str = ""
    gpu: str = ""
    operators: tuple[Operator, ...]
    groups: tuple[Group, ...] = ()
    lines: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    places: Mapping[str, str] = field(default_factory=dict)
    passes: tuple[Pass, ...] = ()
    events: tuple[Event, ...]
    memory: tuple[Allocation, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.version not in VERSIONS:
            raise ValueError(f"version {self.version} is not known; record it again")
        if self.rank >= self.world:
            raise ValueError(f"rank {self.rank} of a world of {self.world}; record it again")
        if not any(event.kind == "kernel" for event in self.events):
            raise ValueError("it holds no kernel; record a step that computes on the GPU")
        if self.texts and len(self.texts) != len(self.lines):
            raise ValueError(f"{len(self.texts)} texts of {len(self.lines)} lines; record it again")
        for number, event in enumerate(self.events):
            self._check(number, event)
        for group in self.groups:
            last = group.first + sum(stride * (size - 1) for stride, size in group.axes)
            if any(not stride or not size for stride, size in group.axes) or last >= self.world:
                raise ValueError(f"a group ends at rank {last}; record it again")

    def _check(self, number: int, event: Event) -> None:
        known = {
            "operator": self.operators,
            "group": self.groups,
            "line": self.lines,
            "within": self.passes,
        }
        needs = {"kernel": "operator", "collective": "group"}.get(event.kind)
        for key, table in known.items():
            if (index := getattr(event, key)) >= len(table) or (index < 0 and key == needs):
                raise ValueError(
                    f"event {number} has {key} {index} of {len(table)}; record it again"
                )
        if event.peer >= self.world:
            raise ValueError(f"event {number} has peer {event.peer}; record it again")


Entry = TypeVar("Entry")


class InternTable(Generic[Entry]):
    """Entries of which each is kept once, in the order in which they came."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._numbers: dict[str, int] = {}

    def number(self, entry: Entry) -> int:
        """The place of an entry, which is added if it is new."""
        number = self._numbers.setdefault(repr(entry), len(self.entries))
        if number == len(self.entries):
            self.entries.append(entry)
        return number


def pieces_of(recording: Recording) -> tuple[int, ...]:
    """The pieces of the model that its rank holds, in their order."""
    return tuple(sorted({each.piece for each in recording.passes})) or (0,)


def passes_of(recording: Recording) -> Iterator[Action | None]:
    """The pass of each event; None for the optimizer, and for what runs between passes.

    A schedule's own passes are recorded. Any other script's are told by the phases: the next
    microbatch begins with the forward pass behind a backward pass. Where ranks send one another
    messages, forward passes may follow one another, and their numbers are not known (-1).
    """
    if recording.passes:
        chunks = {piece: chunk for chunk, piece in enumerate(pieces_of(recording))}
        actions = [Action(p.kind, p.microbatch, chunks[p.piece]) for p in recording.passes]
        for event in recording.events:
            yield actions[event.within] if event.within >= 0 else None
        return
    numbered = all(event.kind not in ("send", "recv") for event in recording.events)
    microbatch, before = 0 if numbered else -1, "forward"
    for event in recording.events:
        if event.phase == "optimizer":
            yield None
            continue
        if numbered and event.phase == "forward" and before == "backward":
            microbatch += 1
        before = event.phase
        yield Action("F" if event.phase == "forward" else "B", microbatch)
