"""Kernels in a row become segments: device time, host time, lead (`sim.program.durations`)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from sim.config.dataclass import dataclass
from sim.model.block import Block
from sim.model.kernels import (
    GRAPH,
    READ,
    Attention,
    Gemm,
    Item,
    Kernel,
    Lag,
    Mark,
    OperatorClass,
    Overlap,
    loss_class,
)
from sim.program.causes import IMBALANCE, Cause
from sim.program.durations import Duration
from sim.program.memory import MemoryUse, in_a_row
from sim.program.operations import Collective, Segment, Work, beside_kernels

KernelTime = Callable[[Kernel], float]
Operators = Mapping[OperatorClass, float]
ALIKE: Operators = {}


@dataclass(frozen=True, slots=True)
class Issued:
    """A kernel whose launches take the host `seconds` together, instead of its usual seconds."""

    kernel: Kernel
    seconds: float


Items = tuple[Segment | Collective, ...]


def _nothing(call: Collective) -> float:
    return 0.0


def segments(
    items: Iterable[Item | Issued],
    *,
    name: str,
    cause: Cause,
    time: KernelTime,
    launch: float,
    call: Callable[[Collective], float] = _nothing,
    graph: float = 0.0,
    grouped: float = 0.0,
    operators: Operators = ALIKE,
) -> Items:
    """Join the kernels between two collectives into one `Segment`. `time(kernel)` is a kernel's
    device time (s). The other costs are the host's seconds: `launch` for a kernel launch;
    `call(collective)` for a collective, which is issued at the end of the segment before it;
    `graph` for a CUDA graph, which launches its kernels and collectives at once; `grouped` for each
    matrix of a grouped product, beside its launch; `operators` for a kernel of a class, beside its
    launches. If the host reads a result, it launches a copy and waits for it."""
    done: list[Segment | Collective] = []
    row, free = _Row(name, cause), (launch, call, grouped, operators)
    bound = (0.0, _nothing, 0.0, ALIKE)
    for item in items:
        if isinstance(item, Mark):
            launch, call, grouped, operators = bound if item == GRAPH else free
            if item == GRAPH:
                row.add(0.0, graph, 1)
            if item == READ:
                row.add(0.0, launch, 1)
                done += (*row.segment(), Segment(name="read", cause=cause, device=0.0, wait=0.0))
                row = _Row(name, cause)
            continue
        if isinstance(item, Lag):
            done += (*row.segment(), *_lag(item, time))
            row = _Row(name, cause)
            continue
        if isinstance(item, Collective | Overlap):
            collective = item.collective if isinstance(item, Overlap) else item
            row.add(0.0, call(collective), 1)
            done += row.segment()
            row = _Row(name, cause)
        if isinstance(item, Collective):
            done.append(item)
        elif isinstance(item, Overlap):
            beside = _Row(name, cause)
            for kernel in item.kernels:
                _, each = _launched(kernel, launch, 0.0, operators)
                beside.add(time(kernel), each, kernel.launches, loss_class(kernel), _flops(kernel))
            done += beside.segment(item.collective)
        else:
            kernel, each = _launched(item, launch, grouped, operators)
            row.add(time(kernel), each, kernel.launches, loss_class(kernel), _flops(kernel))
    return (*done, *row.segment())


def _launched(
    item: Kernel | Issued, launch: float, grouped: float, operators: Operators
) -> tuple[Kernel, float]:
    """Return a kernel and the host's seconds for each of its launches."""
    if isinstance(item, Issued):
        return item.kernel, item.seconds / max(item.kernel.launches, 1)
    many = grouped if isinstance(item, Gemm) and item.kernels > 1 else 0.0
    return item, launch + many + operators.get(item.operator, 0.0) / max(item.launches, 1)


def blocked(items: Items) -> Items:
    """Return the items for a host that waits for every kernel: host and device seconds add up."""
    return tuple(
        replace(item, device=item.device + item.host, host=0.0, lead=item.device + item.host)
        if isinstance(item, Segment)
        else item
        for item in items
    )


def _lag(item: Lag, time: KernelTime) -> Items:
    late = sum(map(time, item.fullest)) - sum(map(time, item.own))
    if late <= 0.0:
        return ()
    return (Segment(name="late", cause=IMBALANCE, device=late, lead=late),)


def _flops(kernel: Kernel) -> float:
    return kernel.flops if isinstance(kernel, Gemm | Attention) else 0.0


class _Row:
    """The kernels since the last collective, which become one segment."""

    def __init__(self, name: str, cause: Cause) -> None:
        self.name, self.cause = name, cause
        self.duration = Duration()
        self.kernels: dict[str, float] = {}
        self.flops = 0.0

    def add(
        self, device: float, launch: float, launches: int, family: str = "", flops: float = 0.0
    ) -> None:
        host = launch * launches
        # Of n equal kernels, either every one waits for its launch or only the first does.
        lead = max(host + device / max(launches, 1), launch + device)
        self.duration = self.duration.then(Duration(device, host, lead))
        self.flops += flops
        if family:
            self.kernels[family] = self.kernels.get(family, 0.0) + device

    def segment(self, *beside: Collective) -> Items:
        if self.duration.lead == 0.0:
            return ()
        flops = self.flops
        made = Segment(
            name=self.name,
            cause=self.cause,
            device=0.0,
            beside=tuple(beside_kernels(call, self.duration.device) for call in beside),
            flops=flops,
        )
        return (made.lasting(self.duration, self.kernels),)


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """A block, the work of one pass through it, and its use of memory."""

    block: Block
    work: Work
    memory: MemoryUse


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """Pieces in a row as one operation."""

    work: Work
    memory: MemoryUse


def joined(pieces: Sequence[Piece], *, name: str) -> Joined:
    """Return the work and the use of memory of pieces in a row."""
    return Joined(
        Work(name=name, items=tuple(piece.work for piece in pieces)),
        in_a_row(piece.memory for piece in pieces),
    )
