"""What a trace tells of one rank: what its host did, what its device ran, and what waited for what.

The graph of Daydream (Zhu et al. 2020, section 4) and dPRO (Hu et al. 2022, section 4.1): kernels
of a stream in order, each after its launch, hosts that wait for kernels, streams that wait for
events, collectives that begin when all ranks have come.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

Group = tuple[str, str, int]
"""Process group, collective, and how many of these the group had before."""


@dataclass(frozen=True, slots=True)
class Route:
    """What a collective puts on a network after its `latency` (s): names of links, the bytes on
    each and its B/s."""

    latency: float
    links: tuple[tuple[str, float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """What a communication kernel sends: `key` is what its peers know it by. Of the `ranks` that
    take part the `members` are known, or at least on how many `nodes` they were; what it
    `lacks` the trace does not say. With a `route` it shares links with what is under way at the
    same time; without, it lasts as its kernel does."""

    key: Group
    kind: str
    bytes: float
    ranks: int
    nodes: int = 1
    members: tuple[int, ...] = ()
    lacks: str = ""
    route: Route | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """Something that ran on a stream for so many `seconds`, perhaps `on_host`; numbers in `after`
    are kernels.

    `lag` (s) is what it began later than its launch, its stream and what it waited for explain,
    `tail` (s) what a collective ended later than on the rank where it was quickest.
    """

    name: str
    stream: str
    seconds: float
    lag: float = 0.0
    tail: float = 0.0
    after: tuple[int, ...] = ()
    collective: Collective | None = None
    on_host: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HostItem:
    """So many `seconds` of the host, and then a launch (of all of a CUDA graph at once), or a wait
    for kernels (`awaited`)."""

    seconds: float
    launched: tuple[int, ...] = ()
    awaited: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """`steps` steps of one rank in a row, of a job of `world` ranks, which `measured` seconds were
    taken by, if a trace knows; one that does not, knows how long computations take but not its
    communications. `flights` are those of its collectives, from and to so many seconds after its
    first step began."""

    rank: int
    world: int
    kernels: tuple[Kernel, ...]
    host: tuple[HostItem, ...]
    steps: int
    measured: float | None
    flights: Mapping[Group, tuple[float, float]] = field(default_factory=dict)
