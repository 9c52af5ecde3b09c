"""The folded program that the engine plays: one program a role, with indices instead of names.

Everything a role does is a list of steps per stream, computations and communications. Transfers
stand once for all communicators that behave alike and carry what they load on each class of links.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from sim.config.dataclass import dataclass
from sim.engine.costs import Cost
from sim.engine.timeline import Role
from sim.program.actions import Action
from sim.program.causes import Cause
from sim.program.durations import Duration

Loads = tuple[tuple[int, float], ...]  # link class, bytes on it per byte of progress
# Link class, bytes that keep it busy at line rate, bytes without what protocols add to them.
Carried = tuple[tuple[int, float, float], ...]


@dataclass(frozen=True, slots=True)
class Traffic:
    """The traffic of a call: a delay, then `size` bytes over `loads`, `seconds` alone.

    The load of folded-away copies on the same link is included. Its kernel holds `ctas` SMs of a
    rank and moves `memory` bytes through its memory. `sent` are the bytes of the collective itself
    on each link of `loads`, without the protocol's; an empty `sent` means all bytes. The traffic
    takes `at_once` seconds where every group of its scope and stage calls with it, however many of
    them are folded.
    """

    latency: float
    size: float
    loads: Loads
    seconds: float = 0.0
    ctas: int = 0
    memory: float = 0.0
    at_once: float = 0.0
    sent: tuple[float, ...] = ()

    def carried(self, times: float = 1.0) -> Carried:
        """The bytes on each link of so many such calls."""
        sent = self.sent or [self.size * load for _, load in self.loads]
        pairs = zip(self.loads, sent, strict=True)
        return tuple([(link, times * self.size * load, times * own) for (link, load), own in pairs])

    @property
    def alone(self) -> float:
        """Seconds with the links to itself, the delay included."""
        return self.latency + self.seconds


@dataclass(frozen=True, slots=True)
class Item:
    """A part of a computation that can be disturbed: kernels, and traffic that starts with them.

    `cost` is that of both together, undisturbed, `rest` the duration from here to the computation's
    end. Without `kernels` it is traffic alone.
    """

    cost: Cost
    rest: Duration
    kernels: Cost | None = None
    traffic: tuple[tuple[Traffic, Cause], ...] = ()


# Steps and transfers are not frozen, as all else is: a large job has tens of thousands of them.
@dataclass(slots=True, eq=False)
class ComputeStep:
    """Compute: ends at max(ready + device, host free + lead), then frees the host.

    Its collectives among equals are part of its cost; where other traffic can come upon their
    `links`, `items` say what to play then. It joins the transfers of `joins` as it starts and does
    not wait for them: a communication behind it does. So does one behind a computation in which a
    `team` of roles meets: until then it lasts as if all were as far as this role. `label` says what
    it is if no pass; it executes `flops` and puts the bytes of `carried` on links.
    """

    index: int
    name: str
    cost: Cost
    after: tuple[int, ...] = ()
    sync: bool = False
    action: Action | None = None
    label: str = ""
    joins: tuple[int, ...] = ()
    team: int | None = None
    items: tuple[Item, ...] = ()
    links: tuple[int, ...] = ()
    flops: float = 0.0
    carried: Carried = ()


@dataclass(slots=True, eq=False)
class CommunicateStep:
    """Take part in `transfers`, unless a computation has `joined` them before; done when they are.

    Behind a computation of a `team` it lasts until the role is done with it. With `sync` the host
    has waited for it and launches nothing before its end.
    """

    index: int
    name: str
    transfers: tuple[int, ...]
    after: tuple[int, ...] = ()
    joined: bool = False
    sync: bool = False
    team: int | None = None


Step = ComputeStep | CommunicateStep


@dataclass(slots=True, kw_only=True, eq=False)
class Transfer:
    """Starts when `arity` roles have met; `ranks` take part in each of those that it stands for.

    A message goes the `way` from one stage to another.
    """

    name: str
    cause: Cause
    kind: str
    arity: int
    traffic: Traffic
    bytes: float
    ranks: int
    algorithm: str = ""
    protocol: str = ""
    way: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class LinkClass:
    """Links that carry the same traffic: the first one's name, their number, B/s of each."""

    name: str
    count: int
    capacity: float


@dataclass(frozen=True, slots=True)
class RoleProgram:
    """One role and its streams, each an ordered list of steps."""

    role: Role
    streams: dict[str, list[Step]]

    @property
    def steps(self) -> int:
        return sum(len(stream) for stream in self.streams.values())


@dataclass(frozen=True, slots=True, eq=False)
class Team:
    """A computation of the `roles`: its `table` [2 roles, 2 roles] leads from (ready, host) of all
    to those behind it, as long as nothing else comes upon the `links` that it loads."""

    roles: tuple[int, ...]
    table: NDArray[np.float64]
    links: tuple[int, ...]

    def behind(self, before: Sequence[float]) -> list[float]:
        """When each role is done and then when each host is free."""
        moments: list[float] = (self.table + np.array(before)).max(axis=1).tolist()
        return moments


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedProgram:
    """The program that `sim.engine.clock.play` plays; `teams` by the numbers in their steps."""

    roles: tuple[RoleProgram, ...]
    transfers: tuple[Transfer, ...]
    links: tuple[LinkClass, ...]
    teams: Mapping[int, Team] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        return sum(role.steps for role in self.roles)
