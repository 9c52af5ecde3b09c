"""Operations: what a rank computes and communicates, on which stream, after which operations.

A communication names mesh axes or a peer stage instead of ranks, and an operation of a pass
names no microbatch. So equal ranks and equal passes share one description.

`PassOps` are the operations of a pass in order, written once for every engine that plays them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property, lru_cache
from math import inf
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from sim.config.dataclass import dataclass
from sim.config.schema import Short
from sim.config.units import Bytes, BytesPerSecond, Seconds
from sim.program.causes import PIPELINE, Cause
from sim.program.durations import Duration
from sim.program.memory import NOTHING, MemoryUse, in_a_row
from sim.program.schedule import Action

if TYPE_CHECKING:
    from sim.program.routed import Routed


Measurable = Literal["all_reduce", "all_gather", "reduce_scatter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredBandwidth:
    """The measured rate of a collective of `size` bytes (as nccl-tests counts them) over `gpus`
    devices.

    `bus_bandwidth` is nccl-tests' busbw: bytes that a ring sends over each of its links a second.
    """

    collective: Measurable
    gpus: int
    size: Bytes
    bus_bandwidth: BytesPerSecond


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """Seconds for which checks hold up every host of a group before a collective: `node` for each
    rank on the node of the group's first rank, `network` for each rank on another node.

    Source: torch/csrc/distributed/c10d/ProcessGroupWrapper.cpp, `runCollectiveChecks`, which runs
    with TORCH_DISTRIBUTED_DEBUG=DETAIL. In a monitored barrier the first rank hears and answers all
    other ranks one after the other. Two all-gathers then compare the calls that the ranks are about
    to make. All checks run by Gloo over TCP, so the time grows with the ranks and not with the
    bytes, and devices keep running. Messages between two ranks are not checked. `measured` are bus
    bandwidths of jobs with these checks, by which such jobs are recognised.

    >>> Checks(node=0.25, network=0.5).seconds(8, 8)
    6.0
    """

    node: Seconds
    network: Seconds
    measured: tuple[MeasuredBandwidth, ...] = ()

    def __post_init__(self) -> None:
        for key in ("node", "network"):
            if getattr(self, key) <= 0:
                raise ValueError(f"checks.{key} must be positive; leave [checks] out for none")

    def seconds(self, near: int, far: int) -> float:
        """Return the seconds of checks before a collective among `near` ranks on the node of the
        first rank and `far` ranks on other nodes."""
        return near * self.node + far * self.network if near + far > 1 else 0.0


AUTO = "auto"  # among names of algorithms: the algorithms that the library considers by itself


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], Short(_listed)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmRule:
    """Calls of these `kinds` of at most `up_to` bytes take the algorithm `use`, or the quickest if
    `use` names several. Without `kinds`, the rule holds for all calls that the algorithm offers."""

    use: Names
    kinds: Names = ()
    up_to: Bytes = inf

    def __post_init__(self) -> None:
        if not self.use:
            raise ValueError("use is empty; name an algorithm, or leave the rule out")


def _rules(value: Any) -> Any:
    """Turn a name, or a list of names, into a list with one rule.

    >>> _rules("ring"), _rules(["ring", "tree"])
    ([{'use': ['ring']}], [{'use': ['ring', 'tree']}])
    """
    names = _listed(value)
    plain = isinstance(names, list) and names and all(isinstance(name, str) for name in names)
    return [{"use": names}] if plain else value


AlgorithmChoice = Annotated[tuple[AlgorithmRule, ...], Short(_rules)]
"""Rules, of which the first that fits a call holds. A name, or a list of names, is one rule."""


Kind = Literal[
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "copy",
    "stream",
]  # fmt: skip
HostLink = Literal[
    "pcie-up", "pcie-down", "memory", "nvme-up", "nvme-down", "cores", "workers", "operations",
    "storage-up", "storage-down", "client-up", "client-down", "nic-up", "nic-down", "pod-up",
    "pod-down",
]  # fmt: skip

COMPUTE_STREAM = "compute"
INPUT = "input"  # in `after`: the operation that brings a pass its input


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """A collective among the ranks that differ from this one in `axes` only.

    `bytes` is the size of the whole tensor as nccl-tests counts it: the all-reduced buffer, the
    gathered result, the tensor before reduce-scatter, or all that a rank sends in an all-to-all.
    `stages` restricts a group along `pp` (the tied embedding lives on the first and the last
    stage). A `quiet` collective does not slow the kernels beside it, since copy engines or a few
    SMs move it. An all-to-all of `routed` items sends one copy of an item to every node that the
    item has to reach; the node passes it on. `bytes` then are the bytes of one copy of a rank's
    items. The tensor may also be cut into `times` pieces, which equal collectives send one after
    the other. Kernels run `beside` the collective for this many seconds; meanwhile it has only a
    share of its ports (`Device.beside`), unless it is quiet.
    """

    kind: Kind
    axes: tuple[str, ...]
    bytes: float
    name: str
    cause: Cause
    stages: tuple[int, ...] | None = None
    quiet: bool = False
    routed: "Routed | None" = None
    times: int = 1
    beside: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy(Collective):
    """A collective of a single rank: a copy of `bytes` between the rank and the host of its node.
    All ranks of the node share the host's links (`sim.hardware.cluster.host`).

    A copy whose path is only the memory is work of the host's processors, limited by memory
    bandwidth. Each byte of a copy puts the bytes in `loads` on the links of its path (default: 1).
    A copy of kind "stream" is many copies one after the other, so their latencies do not add up.
    Only the first rank along the axes of `first` copies.
    """

    kind: Kind = "copy"
    axes: tuple[str, ...] = ()
    path: tuple[HostLink, ...]
    loads: tuple[float, ...] = ()
    first: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedCollective(Collective):
    """A collective whose links are known beforehand, such as a collective of a recorded step.

    It begins when all of its `stages` have reached it. It lasts `latency` (s), and then as long as
    its `loads` take: (name of a link, bytes on it, its B/s). `ranks` counts all ranks that take
    part, recorded or not.
    """

    axes: tuple[str, ...] = ("pp",)
    stages: tuple[int, ...]
    ranks: int
    latency: float
    loads: tuple[tuple[str, float, float], ...] = ()


@lru_cache(maxsize=4096)
def beside_kernels(call: Collective, seconds: float = inf) -> Collective:
    """Return the collective with `seconds` of kernels beside it. Equal calls share one object."""
    return replace(call, beside=seconds)


def issued(calls: tuple[Collective, ...], stream: str) -> tuple[Collective, ...]:
    """Return collectives as a stream runs them: beside kernels, except on the compute stream."""
    return calls if stream == COMPUTE_STREAM else tuple(map(beside_kernels, calls))


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Send `bytes` to the rank of stage `to` that has the same place in every other axis. The
    communicator has `among` ranks (`Exchange.among`)."""

    to: int
    bytes: float
    key: str
    among: int = 2
    cause: Cause = PIPELINE


@dataclass(frozen=True, slots=True, kw_only=True)
class Receive:
    """The other end of the `Send` with the same key."""

    source: int
    bytes: float
    key: str
    among: int = 2
    cause: Cause = PIPELINE


Call = Collective | Send | Receive


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Kernels that run back to back on the device, between two communications.

    `device`, `host`, `lead` and `wait` are its `Duration` (s). `kernels` are the device's seconds
    by class of kernel (gemm, attention, stream), `flops` the FLOPs that matrix products execute.
    The collectives in `beside` start with the segment, and the next item waits for them, too.
    """

    name: str
    cause: Cause
    device: float
    host: float = 0.0
    lead: float = 0.0
    wait: float = -inf
    beside: tuple[Collective, ...] = ()
    kernels: tuple[tuple[str, float], ...] = ()
    flops: float = 0.0

    @property
    def duration(self) -> Duration:
        return Duration(self.device, self.host, self.lead, self.wait)

    def lasting(self, duration: Duration, kernels: Mapping[str, float]) -> "Segment":
        """Return this segment with another duration and other seconds of kernels by class."""
        device, host, lead, wait = duration
        seconds = tuple(kernels.items())
        return replace(self, device=device, host=host, lead=lead, wait=wait, kernels=seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """The part of the compute stream beside which a collective X of another stream may run:
    `kernels` (s), and the collectives `calls`, which delay X. X lasts `times` times as long as
    alone."""

    kernels: float
    calls: tuple[Collective, ...] = ()
    times: float = 1.0


class Beside(NamedTuple):
    """A collective that runs on another stream while some work runs. With a `stretch`, the work is
    a part of the stretch and meets only its share of the collective's seconds."""

    call: Collective
    stretch: Stretch | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Work:
    """Segments and the collectives between them, in order; equal parts may be one object.

    The collectives in `beside` slow the kernels of the work, but the work does not wait for them.
    """

    name: str
    items: tuple["Segment | Collective | Work", ...]
    beside: tuple[Beside, ...] = ()

    def flat(self) -> Iterator[Segment | Collective]:
        """Yield all segments and collectives in order, also of inner work."""
        for item in self.items:
            if isinstance(item, Work):
                yield from item.flat()
            else:
                yield item

    def collectives(self, seen: "dict[int, Work] | None" = None) -> Iterator[Collective]:
        """Yield the collectives in order, including collectives beside segments. Inner work that
        occurs several times yields its collectives once.

        Work in `seen` is left out; this work is added to it.
        """
        seen = {} if seen is None else seen
        seen[id(self)] = self
        for item in self.items:
            if isinstance(item, Collective):
                yield item
            elif isinstance(item, Segment):
                yield from item.beside
            elif id(item) not in seen:
                yield from item.collectives(seen)

    def every_call(self) -> Iterator[Collective]:
        """Yield the collectives of this work, the collectives of other streams beside it, and the
        collectives that these wait for."""
        seen: dict[int, Work] = {}
        yield from self.collectives(seen)
        for work in seen.values():
            for call, stretch in work.beside:
                yield call
                yield from stretch.calls if stretch else ()


@dataclass(frozen=True, slots=True)
class Recent:
    """In `after`: the stage's `back`-th most recent computation.

    If the stage has run fewer computations, the pass's own input takes its place.
    """

    back: int


@dataclass(frozen=True, slots=True)
class Drained:
    """In `after`: the last operation issued on a stream, and thus all operations before it."""

    stream: str


After = tuple[str | Recent | Drained, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Compute:
    """Run `work` on the compute stream once all operations named in `after` are done.

    `sync` makes the host wait for the device at the end of the work (a loss that is printed, an
    overflow check). `name` tells the operations of a pass apart; the last operation has no name.
    """

    name: str
    work: Work
    after: After = ()
    stream: str = COMPUTE_STREAM
    sync: bool = False
    memory: MemoryUse = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Communicate:
    """Take part in all of `calls` at once. The operation ends when the last call ends.

    A transfer starts when every participant has reached it. On the compute stream the operation
    blocks the passes after it; on a stream of its own it overlaps them. `sync` makes the host wait
    for the end, too (`torch.cuda.synchronize`), so nothing after the operation is launched ahead.
    """

    name: str
    calls: tuple[Call, ...]
    after: After = ()
    stream: str = COMPUTE_STREAM
    sync: bool = False
    memory: MemoryUse = NOTHING


Operation = Compute | Communicate


@dataclass(frozen=True, eq=False)
class PassOps:
    """Operations in order, with their memory, calls and streams as a whole.

    The operations usually belong to one pass. In a recorded step of a script they belong to several
    passes: `passes` then has the pass of each operation, or None for an operation of no pass, and
    the operations' names are unique in the step.
    """

    operations: tuple[Operation, ...] = ()
    passes: tuple[Action | None, ...] = ()

    def __iter__(self) -> Iterator[Operation]:
        return iter(self.operations)

    def __len__(self) -> int:
        return len(self.operations)

    @cached_property
    def memory(self) -> MemoryUse:
        return in_a_row(op.memory for op in self.operations if op.memory is not NOTHING)

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """The distinct calls, beginning with the calls inside computations."""
        issued = (op for op in self.operations if isinstance(op, Communicate))
        return tuple(
            dict.fromkeys((*self.calls_inside, *(call for op in issued for call in op.calls)))
        )

    @cached_property
    def calls_inside(self) -> tuple[Call, ...]:
        """The distinct calls inside computations."""
        seen: dict[int, Work] = {}
        calls: dict[Call, None] = {}
        for operation in self.operations:
            if isinstance(operation, Compute):
                calls |= dict.fromkeys(operation.work.collectives(seen))
        return tuple(calls)

    @cached_property
    def streams(self) -> frozenset[str]:
        return frozenset(operation.stream for operation in self.operations)
