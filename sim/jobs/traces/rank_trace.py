"""What does a trace tell of one rank: its host, its kernels, and which of them waited for which?

The graph of Daydream (Zhu et al. 2020, section 4) and dPRO (Hu et al. 2022, section 4.1). Kernels
of a stream run in order, each after its launch. Hosts wait for kernels, streams for events, and
collectives begin when all ranks have come.

Clocks of hosts differ. A collective ends on all of its ranks at about the same time, so the median
distance of these ends is the distance of two clocks (dPRO, section 4.2), and thereby of the
beginnings of their steps. A collective that ends later than this has a `tail`.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from statistics import median

from sim.config.dataclass import dataclass
from sim.model.kernels import Attention, Gemm

Group = tuple[str, str, int]
"""Process group, collective, and how many of these the group had before."""


@dataclass(frozen=True, slots=True)
class Route:
    """The links that a collective loads after its `latency` (s): their names, the bytes on each,
    its B/s."""

    latency: float
    links: tuple[tuple[str, float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """A collective or a message. Ranks that take part have the `key` in common.

    Of the `ranks` of its group the `members` are known, or at least on how many `nodes` they were.
    `lacks` names a fact that the trace does not have. With a `route` a collective shares its links
    with others that are in flight; without, it lasts as long as its kernel did.
    """

    key: Group
    kind: str
    bytes: float
    ranks: int
    nodes: int = 1
    members: tuple[int, ...] = ()
    lacks: str = ""
    beside: float = 0.0  # s of kernels beside it, where the trace says so
    route: Route | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A kernel that ran on a stream for `seconds`, or an operation `on_host`. `after` has the
    numbers of the kernels that it waited for.

    `lag` (s) is the part of its delay that neither its launch nor its stream nor a wait explains.
    `usual` is the part of the lag that kernels of this category usually have on this device.
    `tail` (s) is how much later a collective ended here than on its quickest rank. `work` is the
    product or the attention that its operator is, where the trace has shapes.
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
    """The host works for so many `seconds`, then launches kernels (all of a CUDA graph at once) or
    waits for the `awaited` ones."""

    seconds: float
    launched: tuple[int, ...] = ()
    awaited: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTrace:
    """Consecutive `steps` of one rank of a job of `world` ranks.

    `ends` has the moments at which the device ended its first and its last step, in seconds after
    the first step began. It is None where a trace has the times of computations but not of
    communications. The first step launched so many kernels (`lead`), or the step before it where a
    trace has only one step. It is 0 where there are none, and where a step has no kernels.
    `flights` has the begin and the end of each collective, in the same seconds. `device` is what
    the driver calls the device, and its memory in bytes; empty where the trace does not say.
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
    """Ranks that begin as much later than the first of them as their traces did."""
    offsets = [_offset(ranks[0], rank) for rank in ranks]
    first = min(offsets, default=0.0)
    later = [offset - first for offset in offsets]
    earliest = _earliest_ends(ranks, later)
    return [_later(rank, offset, earliest) for rank, offset in zip(ranks, later, strict=True)]


def _offset(reference: RankTrace, rank: RankTrace) -> float:
    """Seconds by which a rank began later than another with which it has collectives in common."""
    common = reference.flights.keys() & rank.flights.keys()
    ends = (reference.flights[key][1] - rank.flights[key][1] for key in common)
    return median(ends) if common else 0.0


def _earliest_ends(ranks: Sequence[RankTrace], later: Sequence[float]) -> dict[Group, float]:
    """When each collective could end: the shortest time that it lasted after its last rank came."""
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
