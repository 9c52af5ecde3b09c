"""Transfers of a program on the clock: each class of equal calls is one transfer."""

from typing import TYPE_CHECKING

import numpy as np

from sim.engine.communicators import NOBODY, Scope
from sim.engine.folded import Transfer
from sim.engine.transfers import NO_TRAFFIC, RankTransfers, TransferDesk, kind_of, volume_of
from sim.program.causes import STRAGGLERS
from sim.program.operations import Call, Collective, Send

if TYPE_CHECKING:
    from sim.engine.outline import Named


class ClockDesk:
    """Numbers the transfers of one folded program; `desk` knows the traffic of each transfer."""

    def __init__(self, desk: TransferDesk) -> None:
        self.desk = desk
        self.transfers: list[Transfer] = []
        self._numbers: dict[tuple[int, str], int] = {}
        self._rivals: dict[int, bool] = {}
        self._like: dict[int, int] = {}
        self._kinds: dict[object, int] = {}

    def at(self, index: int) -> "ClockTransfers":
        """The transfers of the representative rank with this index."""
        return ClockTransfers(self, index)

    def arity(self, g: int) -> int:
        """The number of roles among a communicator's members."""
        return len(self.desk.roles(g))

    def has_rivals(self, g: int) -> bool:
        """Whether traffic of another class of communicators, or of other jobs, uses the links of
        communicator g. Transfers of its own class beside computations count as rivals, too."""
        number = self.desk.class_of[g]
        if number in self.desk.beside:
            return True
        if number not in self._rivals:
            loads = self.desk.groups.loads
            links = loads.link[self.desk.rows(self.desk.first_group[number])]
            touching = self.desk.classes.groups[loads.group[np.isin(loads.link, links)]]
            shared = self.desk.machine.shared
            self._rivals[number] = bool((touching != number).any()) or any(
                self.desk.groups.links[link] in shared for link in links.tolist()
            )
        return self._rivals[number]

    def transfer(self, g: int, named: "Named", stage: int) -> int:
        """The number of the transfer to which a call of a member of communicator g belongs."""
        call, _, name = named
        key = self.desk.class_of[g], name
        if (number := self._numbers.get(key)) is None:
            number = self._numbers[key] = len(self.transfers)
            self.transfers.append(self._build(self.desk.first_group[key[0]], call, name, stage))
            return number
        known = self.transfers[number]
        if known.kind != kind_of(call) or known.bytes != call.bytes:
            raise ValueError(f"two transfers of one group are both called {name!r}")
        if isinstance(call, Collective) and call.beside:  # the slowest participant's kernels count
            built = self._build(self.desk.first_group[key[0]], call, name, stage)
            self.transfers[number] = max(known, built, key=lambda each: each.traffic.size)
        return number

    def like(self, g: int) -> int:
        """A number that is equal for communicators whose calls all take equally long."""
        if g not in self._like:
            rates = [link.capacity for link in self.desk.links]
            ways = range(self.desk.groups.loads.nic.shape[1])
            loads = tuple(
                (
                    frozenset(of_way.busiest),
                    frozenset((rates[link], port, nic) for link, port, nic in of_way.through),
                    frozenset((port, nic, rates[link]) for port, nic, link in of_way.at_once),
                )
                for of_way in (self.desk.loads(g, way) for way in ways)
            )
            key = self.desk.groups.shape[g], self.arity(g) > 1, loads
            self._like[g] = self._kinds.setdefault(key, len(self._kinds))
        return self._like[g]

    def team(self, g: int, call: Collective, name: str) -> int:
        """The number of an empty transfer. It begins when all roles of a communicator have begun a
        computation that they run together."""
        key = (self.desk.class_of[g], f"{name} together")
        if key not in self._numbers:
            self._numbers[key] = len(self.transfers)
            met = Transfer(
                name=name,
                cause=STRAGGLERS,
                kind=call.kind,
                arity=self.arity(g),
                traffic=NO_TRAFFIC,
                bytes=0.0,
                ranks=self.desk.groups.shape[g].ranks,
            )
            self.transfers.append(met)
        return self._numbers[key]

    def _build(self, g: int, call: Call, name: str, stage: int) -> Transfer:
        volume = volume_of(call)
        traffic = self.desk.traffic_of(g, volume)
        algorithm, protocol = self.desk.chosen[g, volume]
        return Transfer(
            name=name,
            cause=call.cause,
            kind=volume.kind,
            arity=self.arity(g),
            traffic=traffic,
            bytes=call.bytes,
            ranks=self.desk.groups.shape[g].ranks,
            algorithm=algorithm,
            protocol=protocol,
            way=_way(call, stage),
        )


class ClockTransfers(RankTransfers):
    """The transfers of one rank on the clock."""

    def __init__(self, clock: ClockDesk, index: int) -> None:
        super().__init__(clock.desk, index)
        self.clock = clock

    def transfer(self, named: "Named", stage: int) -> int | None:
        """The transfer's number, or None if the rank is the only member of its group."""
        g = self._group_of(named.scope)
        return None if g == NOBODY else self.clock.transfer(g, named, stage)

    def taking_part(self, call: Call, stage: int) -> tuple[int, ...]:
        """The roles that take part in a call; empty if the rank is alone."""
        g = self._group(call, stage)
        return () if g == NOBODY else self.desk.roles(g)

    def among_equals(self, call: Call, stage: int) -> bool:
        """Whether all ranks that take part in a call have this rank's role."""
        return len(self.taking_part(call, stage)) <= 1

    def like(self, scope: Scope) -> object:
        """A number, equal for ranks whose calls of a scope take equally long; None if alone."""
        g = self._group_of(scope)
        return None if g == NOBODY else self.clock.like(g)

    def team(self, call: Collective, stage: int, name: str) -> int:
        """The number of the transfer at which roles of a call begin a computation together."""
        return self.clock.team(self._group(call, stage), call, name)

    @property
    def role(self) -> int:
        """The role of this rank."""
        return int(self.desk.classes.ranks[self.index])

    def has_rivals(self, scope: Scope) -> bool:
        """Whether other traffic uses the links of this rank's communicator of a scope."""
        g = self._group_of(scope)
        return g != NOBODY and self.clock.has_rivals(g)


def _way(call: Call, stage: int) -> tuple[int, int] | None:
    """Source and target stage of a message that `stage` sends or receives."""
    if isinstance(call, Collective):
        return None
    return (stage, call.to) if isinstance(call, Send) else (call.source, stage)
