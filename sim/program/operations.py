"""Operations: what a rank computes and communicates, on which stream, after what.

A communication names a mesh axis or a peer stage instead of ranks, and an operation of a pass
names no microbatch: equal ranks and equal passes share one description.

`PassOps` are the operations of a pass in order, written once for every engine that plays them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property, lru_cache
from math import inf
from typing import TYPE_CHECKING, Literal, NamedTuple

from sim.config.dataclass import dataclass
from sim.program.actions import Action
from sim.program.causes import PIPELINE, Cause
from sim.program.durations import Duration
from sim.program.memory import NOTHING, MemoryUse, in_a_row

if TYPE_CHECKING:
    from sim.program.routed import Routed

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
INPUT = "input"  # in `after`: whatever brings a pass its input


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """A collective among the ranks that differ from this one in `axes` only.

    `bytes` is the size of the whole tensor as nccl-tests counts it: the all-reduced buffer, the
    gathered result, the tensor before reduce-scatter, what a rank has for all others. `stages`
    restricts a group along `pp` (the tied embedding lives on the first and the last stage). Kernels
    lose nothing to a `quiet` one beside them, which copy engines or a few SMs move. An
    all-to-all of `routed` items sends one copy of each to every node that it has to reach, where it
    is passed on; its `bytes` are those of one copy of a rank's items. The tensor may also be cut
    into as many as `times`, sent by equal collectives one after the other. For so many seconds of
    kernels `beside` it, a collective has less of its ports (`Device.beside`), unless it is quiet.
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
    """A collective of one: `bytes` between a rank and the host of its node, over links of that host
    (`sim.hardware.cluster.host`), which it shares with the other ranks of the node.

    Over the memory alone it is work of the host's processors, as fast as their memory lets them.
    A byte of it puts as much as `loads` says on each link of its path (default: 1). A "stream" is
    many copies, one behind the other, so their latencies do not add up. Only the first rank along
    the axes of `first` copies.
    """

    kind: Kind = "copy"
    axes: tuple[str, ...] = ()
    path: tuple[HostLink, ...]
    loads: tuple[float, ...] = ()
    first: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedCollective(Collective):
    """A collective whose links are known beforehand, as one of a recorded step.

    It begins when all of its `stages` have reached it and lasts `latency` (s), then as long as its
    `loads` take: (name of a link, bytes on it, its B/s). `ranks` take part, recorded or not.
    """

    axes: tuple[str, ...] = ("pp",)
    stages: tuple[int, ...]
    ranks: int
    latency: float
    loads: tuple[tuple[str, float, float], ...] = ()


@lru_cache(maxsize=4096)
def beside_kernels(call: Collective, seconds: float = inf) -> Collective:
    """The same collective beside so many seconds of kernels. Equal calls stay one object."""
    return replace(call, beside=seconds)


def issued(calls: tuple[Collective, ...], stream: str) -> tuple[Collective, ...]:
    """Collectives as a stream runs them: on any but that of computations, always beside kernels."""
    return calls if stream == COMPUTE_STREAM else tuple(map(beside_kernels, calls))


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """`bytes` to the rank of stage `to` at the same place in every other axis, over a communicator
    of so many ranks (`Exchange.among`)."""

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

    `device`, `host`, `lead` and `wait` are its `Duration` (s), `kernels` the device's seconds by
    class of kernel (gemm, attention, stream), `flops` what their products execute. The collectives
    in `beside` start with it, and what follows waits for them too.
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
        """This segment with another duration, of these kernels."""
        device, host, lead, wait = duration
        seconds = tuple(kernels.items())
        return replace(self, device=device, host=host, lead=lead, wait=wait, kernels=seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """What the compute stream runs while a collective of another stream may: kernels of so many
    seconds, and collectives that hold it up. The one beside lasts `times` as long as it would."""

    kernels: float
    calls: tuple[Collective, ...] = ()
    times: float = 1.0


class Beside(NamedTuple):
    """A collective on another stream while work runs, or while a `stretch` does of which the work
    is a part: of the collective's seconds it then has its share."""

    call: Collective
    stretch: Stretch | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Work:
    """Segments and the collectives between them, in order; equal parts may be one object.

    What is `beside` it slows its kernels, but it does not wait for it.
    """

    name: str
    items: tuple["Segment | Collective | Work", ...]
    beside: tuple[Beside, ...] = ()

    def flat(self) -> Iterator[Segment | Collective]:
        """All segments and collectives, those of inner work in their places."""
        for item in self.items:
            if isinstance(item, Work):
                yield from item.flat()
            else:
                yield item

    def collectives(self, seen: "dict[int, Work] | None" = None) -> Iterator[Collective]:
        """The collectives in order, those beside segments included, those of inner work once.

        Work that was `seen` before is left out, and this one noted there.
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
        """Its collectives, those of other streams beside it, and those that hold these up."""
        seen: dict[int, Work] = {}
        yield from self.collectives(seen)
        for work in seen.values():
            for call, stretch in work.beside:
                yield call
                yield from stretch.calls if stretch else ()


@dataclass(frozen=True, slots=True)
class Recent:
    """In `after`: the stage's `back`-th most recent computation.

    If there are fewer, it is the pass's own input.
    """

    back: int


@dataclass(frozen=True, slots=True)
class Drained:
    """In `after`: the operation that was last issued on a stream, and so all before it."""

    stream: str


After = tuple[str | Recent | Drained, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Compute:
    """Run `work` on the compute stream once all operations named in `after` are done.

    `sync` makes the host wait for the device at its end (a loss that is printed, an overflow
    check). Inside a pass `name` is what tells its operations apart, empty for the last one.
    """

    name: str
    work: Work
    after: After = ()
    stream: str = COMPUTE_STREAM
    sync: bool = False
    memory: MemoryUse = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Communicate:
    """Take part in all of `calls` at once; done when the last of them is.

    A transfer starts when every participant has reached it. On the compute stream it blocks the
    passes behind it; on a stream of its own it overlaps them. `sync` makes the host wait for its
    end too (`torch.cuda.synchronize`), so that nothing behind it is launched ahead.
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
    """Operations in order, and what they do as a whole.

    `passes` has the pass of each operation (None: of none) where they are those of several, as in
    the step of a script that was recorded; their names are then those that they have in the step.
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
        """The distinct calls, those inside computations first."""
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
