"""The folded program that the engine plays: one program per role, with indices instead of names.

Each stream of a role is a list of steps, computations and communications. A transfer stands for all
communicators that behave alike, and has its loads on each class of links.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from sim.config.dataclass import dataclass
from sim.engine.costs import Cost
from sim.engine.timeline import Role
from sim.program.causes import Cause
from sim.program.durations import Duration
from sim.program.schedule import Action

Loads = tuple[tuple[int, float], ...]  # link class, bytes on the link per byte of `size`
# Link class, bytes that occupy the link at line rate, and bytes without protocols' overhead.
Carried = tuple[tuple[int, float, float], ...]


@dataclass(frozen=True, slots=True)
class Traffic:
    """The traffic of a call: a `latency`, then `size` bytes over `loads`, which take `seconds` if
    nothing else uses the links.

    The loads include copies on the same link that are folded away. The call's kernel holds `ctas`
    SMs of a rank and moves `memory` bytes through the rank's memory. `sent` are the bytes of the
    collective itself on each link of `loads`, without the bytes that its protocol adds; an empty
    `sent` means all bytes. The traffic takes `at_once` seconds in all if every group of its scope
    and stage calls at once, folded or not.
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
        """The bytes of `times` equal calls on each link."""
        sent = self.sent or [self.size * load for _, load in self.loads]
        pairs = zip(self.loads, sent, strict=True)
        return tuple([(link, times * self.size * load, times * net) for (link, load), net in pairs])

    @property
    def alone(self) -> float:
        """Seconds of the traffic alone on its links, the latency included."""
        return self.latency + self.seconds


@dataclass(frozen=True, slots=True)
class Item:
    """A part of a computation that can be disturbed: kernels, and traffic that starts with them.

    `cost` is the undisturbed cost of both together, `rest` the duration from the item's beginning
    to the computation's end. An item without `kernels` is only traffic.
    """

    cost: Cost
    rest: Duration
    kernels: Cost | None = None
    traffic: tuple[tuple[Traffic, Cause], ...] = ()


# Unlike other dataclasses, steps and transfers are not frozen, which would make creating them slow:
# a large job has tens of thousands.
@dataclass(slots=True, eq=False)
class ComputeStep:
    """A computation, which ends at max(ready + device, host free + lead), see `Duration`.

    Collectives among equal ranks are part of its cost. If other traffic can load their `links`, the
    clock plays the `items` one by one while it does. The step joins the transfers in `joins` at its
    start; a later communication waits for them. A computation of a `team` of roles lasts as if all
    roles were as far as this role; a later communication waits for the other roles. `label`
    describes a computation that is no pass. The step executes `flops` and puts the bytes of
    `carried` on links.
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
    """Take part in `transfers`, unless a computation has `joined` them before, and wait for their
    end.

    After a computation of a `team`, the step lasts until the team's computation ends for this role.
    With `sync` the host waits for the step's end and launches nothing before.
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
    """A transfer, which starts when `arity` roles have joined it. It stands for equal communicators
    of `ranks` ranks each. `way` has the source and the target stage of a message.
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
    """Links with equal traffic: the name of the first link, their number, and the B/s of each."""

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
    """A computation that several `roles` play as one step. The (max, +) matrix `table` [2 roles, 2
    roles] takes the times at which devices are ready and hosts are free before the computation, and
    gives the times after it. It holds while no other traffic loads the team's `links`."""

    roles: tuple[int, ...]
    table: NDArray[np.float64]
    links: tuple[int, ...]

    def behind(self, before: Sequence[float]) -> list[float]:
        """When devices are ready, then when hosts are free, given these times `before` it."""
        moments: list[float] = (self.table + np.array(before)).max(axis=1).tolist()
        return moments


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedProgram:
    """The program that `sim.engine.clock.play` plays; steps have the keys of their `teams`."""

    roles: tuple[RoleProgram, ...]
    transfers: tuple[Transfer, ...]
    links: tuple[LinkClass, ...]
    teams: Mapping[int, Team] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        return sum(role.steps for role in self.roles)
