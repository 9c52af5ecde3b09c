"""What does a trace tell about one rank: its host, its kernels, and their waits?

The graph of waits is the same as in Daydream (Zhu et al. 2020, section 4) and dPRO (Hu et al. 2022,
section 4.1). Kernels of a stream run in order, each after its launch. Hosts wait for kernels,
streams wait for events, and a collective begins when all its ranks have arrived.

Clocks of hosts differ. A collective ends on all its ranks at about the same time. So the median
difference of these ends is the difference of two clocks (dPRO, section 4.2). If a collective still
ends later on a rank than on other ranks, the rank's kernel has a `tail`.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from statistics import median

from sim.config.dataclass import dataclass
from sim.model.kernels import Attention, Gemm

Group = tuple[str, str, int]
"""Process group, kind of collective, and its number among the group's collectives of this kind."""


@dataclass(frozen=True, slots=True)
class Route:
    """The links that a collective loads after its `latency` (s): name, bytes and B/s of each."""

    latency: float
    links: tuple[tuple[str, float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """A collective or a message. Ranks that take part have the `key` in common.

    Its group has `ranks` ranks on `nodes` nodes; `members` lists them if they are known. `lacks`
    names a fact that the trace does not have. With a `route` a collective shares its links with
    other collectives; without a route it lasts as long as its measured kernel.
    """

    key: Group
    kind: str
    bytes: float
    ranks: int
    nodes: int = 1
    members: tuple[int, ...] = ()
    lacks: str = ""
    beside: float = 0.0  # seconds of kernels beside it, if the trace tells
    route: Route | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A kernel that ran on a stream for `seconds`, or an operation `on_host`. `after` has the
    numbers of the kernels that it waited for.

    `lag` (s) is the part of its delay that neither its launch nor its stream nor a wait explains.
    `usual` is the part of the lag that kernels of this category usually have on this device. A
    collective should end at its latest begin plus its shortest duration among the ranks; it ended
    `tail` seconds later. `work` is the operator's product or attention, if the trace has shapes.
    """

    name: str
    stream: str
    seconds: float
    lag: float = 0.0
    usual: float = 0.0
    tail: float = 0.0
    after: tuple[int, ...] = ()
    collective: Collective | None = None
    on_host: bool = False
    work: Gemm | Attention | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSpan:
    """The host works for `seconds`, then launches the kernels `launched` (all kernels of a CUDA
    graph at once) or waits for the kernels `awaited`."""

    seconds: float
    launched: tuple[int, ...] = ()
    awaited: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTrace:
    """Consecutive `steps` of one rank of a job of `world` ranks.

    `ends` has the moments at which the device ended its first and its last step, in seconds after
    the first step began. It is None where a trace has the times of computations but not of
    communications. The first `lead` kernels belong to no step that counts: they are the kernels of
    the first step or, in a trace of a single step, kernels of the step before it. `lead` is 0 if
    there are no such kernels, and if a step has no kernels. `flights` has the begin and the end of
    each collective, in the same seconds. `device` is the driver's name of the device, and its
    memory in bytes; empty if the trace does not have them.
    """

    rank: int
    world: int
    kernels: tuple[Kernel, ...]
    host: tuple[HostSpan, ...]
    steps: int
    ends: tuple[float, float] | None
    lead: int = 0
    flights: Mapping[Group, tuple[float, float]] = field(default_factory=dict)
    device: tuple[str, float] = ("", 0.0)


def aligned(ranks: Sequence[RankTrace]) -> list[RankTrace]:
    """Return the ranks on a common clock: each rank begins as much later than the earliest rank as
    in the measured run."""
    offsets = [_offset(ranks[0], rank) for rank in ranks]
    first = min(offsets, default=0.0)
    later = [offset - first for offset in offsets]
    earliest = _earliest_ends(ranks, later)
    return [_later(rank, offset, earliest) for rank, offset in zip(ranks, later, strict=True)]


def _offset(reference: RankTrace, rank: RankTrace) -> float:
    """Return how many seconds later than `reference` a rank began, from the ends of collectives in
    which both take part (0 without such collectives)."""
    common = reference.flights.keys() & rank.flights.keys()
    ends = (reference.flights[key][1] - rank.flights[key][1] for key in common)
    return median(ends) if common else 0.0


def _earliest_ends(ranks: Sequence[RankTrace], later: Sequence[float]) -> dict[Group, float]:
    """Return when each collective could end: its latest begin plus its shortest duration."""
    begins: defaultdict[Group, list[float]] = defaultdict(list)
    lasted: defaultdict[Group, list[float]] = defaultdict(list)
    for rank, offset in zip(ranks, later, strict=True):
        for key, (begin, end) in rank.flights.items():
            begins[key].append(begin + offset)
            lasted[key].append(end - begin)
    return {key: max(moments) + min(lasted[key]) for key, moments in begins.items()}


def _later(rank: RankTrace, seconds: float, earliest: Mapping[Group, float]) -> RankTrace:
    if rank.ends is None or not rank.host:
        return rank
    host = (HostSpan(seconds=seconds), *rank.host) if seconds > 0.0 else rank.host
    kernels = tuple(_ended(kernel, rank, seconds, earliest) for kernel in rank.kernels)
    first, last = rank.ends
    return replace(rank, host=host, kernels=kernels, ends=(first + seconds, last + seconds))


def _ended(
    kernel: Kernel, rank: RankTrace, offset: float, earliest: Mapping[Group, float]
) -> Kernel:
    key = kernel.collective.key if kernel.collective else None
    if key is None or key not in rank.flights:
        return kernel
    tail = rank.flights[key][1] + offset - earliest[key]
    return replace(kernel, tail=tail) if tail > 0.0 else kernel
