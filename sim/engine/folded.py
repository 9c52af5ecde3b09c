"""The score that the engine plays: a program after folding, with indices instead of names.

Everything a role does is a list of steps per stream; a step is a `Pass` (compute) or a `Meet`
(communication). Transfers stand once for all communicators that behave alike and carry what they
load on each class of links.
"""

from dataclasses import dataclass

from sim.engine.timeline import Role


@dataclass(frozen=True, slots=True)
class Pass:
    """Compute: ends at max(ready + device, host free + lead), then frees the host (see Segment).

    `parts` are (cause, seconds) that add up to `device`. It joins the transfers of `joins` as it
    starts and does not wait for them: a `Meet` behind it does.
    """

    index: int
    name: str
    device: float
    host: float
    lead: float
    parts: tuple[tuple[str, float], ...]
    after: tuple[int, ...] = ()
    sync: bool = False
    phase: str = ""
    microbatch: int = -1
    chunk: int = 0
    joins: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Meet:
    """Take part in `transfers`, unless a `Pass` has `joined` them before; done when they are.

    With `sync` the host has waited for it and launches nothing before its end.
    """

    index: int
    name: str
    transfers: tuple[int, ...]
    after: tuple[int, ...] = ()
    joined: bool = False
    sync: bool = False


Step = Pass | Meet


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Starts when `arity` roles have met; lasts `latency` and then `size` bytes over `loads`.

    `loads` are (link class, bytes on it per byte of progress), everything counted that the
    folded-away copies put on the same link.
    """

    name: str
    cause: str
    kind: str
    arity: int
    latency: float
    size: float
    loads: tuple[tuple[int, float], ...]
    bytes: float
    ranks: int
    algorithm: str = ""
    protocol: str = ""
    stages: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class LinkClass:
    """Links that carry the same traffic: the first one's name, their number, B/s of each."""

    name: str
    count: int
    capacity: float


@dataclass(frozen=True, slots=True)
class Part:
    """One role and its streams, each an ordered list of steps."""

    role: Role
    streams: dict[str, list[Step]]

    @property
    def steps(self) -> int:
        return sum(len(stream) for stream in self.streams.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What `sim.engine.clock.play` plays."""

    parts: tuple[Part, ...]
    transfers: tuple[Transfer, ...]
    links: tuple[LinkClass, ...]
