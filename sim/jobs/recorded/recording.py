"""What did a rank do in a step? Operators, streams, events, collectives and memory."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from math import prod
from typing import Annotated, Any, Generic, Literal, TypeVar

from sim.config.dataclass import dataclass
from sim.config.units import Ge
from sim.hardware.kernels.dispatch import Phase
from sim.program.schedule import Action, Kind

VERSION = 4
VERSIONS = (1, 2, 3, VERSION)  # version 1 had no passes, 2 no `record_stream`, 3 no `places`

EventKind = Literal["kernel", "collective", "send", "recv", "done", "record", "wait", "sync"]
Index = Annotated[int, Ge(0)]
Reference = Annotated[int, Ge(-1)]  # an index, or -1 for none

PARTS = ("parameters", "gradients", "optimizer", "activations", "temporary", "buffers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """An operand: torch's name of its type ("bfloat16"), the bytes of an element (`width`), and the
    shape. A broadcast tensor has the number of its distinct `elements`, any other tensor -1."""

    dtype: str
    width: Annotated[float, Ge(0)]
    shape: tuple[Index, ...]
    elements: Reference = -1

    @property
    def bytes(self) -> float:
        """The bytes of the tensor in memory; broadcast elements count once."""
        return self.width * (prod(self.shape) if self.elements < 0 else self.elements)


def covered(shape: Sequence[int], strides: Sequence[int]) -> int:
    """The `elements` of a `Tensor` with this shape and these strides.

    >>> covered((4, 3), (3, 1)), covered((4, 3), (0, 1))
    (-1, 3)
    """
    elements = prod(n for n, stride in zip(shape, strides, strict=True) if stride)
    return -1 if elements == prod(shape) else elements


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """An operator of torch ("aten.mm") with its tensors; lists are flattened. `flags` are other
    arguments that its kernel depends on. `written` are the bytes that it writes."""

    name: str
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    written: Annotated[float, Ge(0)] = 0.0
    flags: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A process group: its `first` rank, and the stride and size of each axis of its ranks.

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
    """A pass of a `microbatch` through a `piece` of a model that a pipeline divides. Its kind is
    forward or a kind of backward pass (`sim.program.schedule`)."""

    kind: Kind
    microbatch: Index
    piece: Index = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An action of the host on a `stream` (0: the default stream).

    "kernel" launches an `operator`; `again` marks recomputation. The kernel is the first reader of
    the results of the collectives in `reads`. A CUDA `graph` launches it (0: the host does).
    `views` counts the views that the host has made since the previous kernel.

    "collective" runs in a `group`; "send" and "recv" name the other rank (`peer`). `bytes` are
    those of the whole tensor. "done" and `reads` refer to a collective by its `mark`: "done" makes
    the stream wait for the collective. A `blocking` collective holds up its stream by itself.

    No gradient flows through a forward kernel marked `aside`: the script has switched gradients
    off, or no operand of the kernel requires a gradient.

    "record" sets a `mark` on a stream, "wait" makes a stream wait for a mark, and "sync" makes the
    host wait for the stream. `line` is the line of the script, `within` the pass of a pipeline's
    schedule.
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
    """A change of a block of memory just before an `event` (-1: before the step).

    Positive `bytes` allocate the block, 0 frees it, and -1 records that this `stream` uses it, too
    (`Tensor.record_stream`). `part` is an index of `PARTS`. Freeing block 0 returns all cached
    blocks to the device (`empty_cache`).
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
    `passes` by number. `texts` are the source text of the lines, if it was recorded.

    `parameters` counts the model's parameters. `samples` counts the samples that the rank trains
    on, as counted by its loader or by the recorder (0: unknown). `places` are the lines that make
    the "optimizer", wrap the model for several ranks ("wrapper"), and "call" the model. `memory` is
    in the host's order, from the beginning of the script. `allocator` has the script's settings of
    torch's caching allocator. `gpu` names the device that the script saw. `notes` are shown with a
    result.
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
            raise ValueError(f"rank {self.rank} is not below {self.world} ranks; record it again")
        if not any(event.kind == "kernel" for event in self.events):
            raise ValueError("it holds no kernel; record a step that computes on the GPU")
        if self.texts and len(self.texts) != len(self.lines):
            raise ValueError(f"{len(self.texts)} texts, {len(self.lines)} lines; record it again")
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
                    f"event {number} has {key} {index}, but there are {len(table)}; record it again"
                )
        if event.peer >= self.world:
            raise ValueError(f"event {number} has peer {event.peer}; record it again")


Entry = TypeVar("Entry")


class InternTable(Generic[Entry]):
    """A table that keeps each distinct entry once, in order of first appearance."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._numbers: dict[str, int] = {}

    def number(self, entry: Entry) -> int:
        """The place of an entry, which is added if it is new."""
        number = self._numbers.setdefault(repr(entry), len(self.entries))
        if number == len(self.entries):
            self.entries.append(entry)
        return number


def communicates(events: Iterable[Event], groups: Sequence[Group]) -> bool:
    """Whether a rank exchanges anything with other ranks in a step. Ranks without any exchange are
    separate jobs."""
    apart = {number for number, group in enumerate(groups) if any(n > 1 for _, n in group.axes)}
    return any(
        event.kind in ("send", "recv") or (event.kind == "collective" and event.group in apart)
        for event in events
    )


def pieces_of(recording: Recording) -> tuple[int, ...]:
    """The numbers of the model's pieces that the recorded rank holds, in order."""
    return tuple(sorted({each.piece for each in recording.passes})) or (0,)


def passes_of(recording: Recording) -> Iterator[Action | None]:
    """Yield the pass of each event; None for the optimizer and for events between passes.

    Passes of a pipeline's schedule are recorded. In other scripts, phases show the passes: a
    forward pass after a backward pass begins the next microbatch. If ranks send messages, forward
    passes may follow one another, and the numbers of their microbatches are unknown (-1).
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
