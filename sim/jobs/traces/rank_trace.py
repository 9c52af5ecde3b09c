"""What does a trace tell of one rank: its host, its kernels, and which of them waited for which?

The graph of Daydream (Zhu et al. 2020, section 4) and dPRO (Hu et al. 2022, section 4.1). Kernels
of a stream run in order, each after its launch. Hosts wait for kernels, streams for events, and
collectives begin when all ranks have come.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

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
    route: Route | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A kernel that ran on a stream for so many `seconds`, or an operation `on_host`. `after` has
    the numbers of the kernels that it waited for.

    `lag` (s) is the part of its delay that neither its launch nor its stream nor a wait explains.
    `tail` (s) is how much later a collective ended here than on its quickest rank.
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
class HostSpan:
    """The host works for so many `seconds`, then launches kernels (all of a CUDA graph at once) or
    waits for the `awaited` ones."""

    seconds: float
    launched: tuple[int, ...] = ()
    awaited: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTrace:
    """Consecutive `steps` of one rank of a job of `world` ranks.

    `measured` (s) is how long they took together. It is None where a trace has the times of
    computations but not of communications. `flights` has the begin and the end of each collective,
    in seconds after the first step began.
    """

    rank: int
    world: int
    kernels: tuple[Kernel, ...]
    host: tuple[HostSpan, ...]
    steps: int
    measured: float | None
    flights: Mapping[Group, tuple[float, float]] = field(default_factory=dict)
