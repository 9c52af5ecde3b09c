"""Where calls become transfers: every rank's calls, each class of equal calls as one transfer."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sim.collectives.interconnect import CallCost
from sim.engine.communicators import Communicator, Scope, scope_of
from sim.engine.folded import LinkClass, Transfer
from sim.engine.machine import Machine
from sim.hardware.cluster.topology import Link
from sim.program import Call, Collective


@dataclass(frozen=True, slots=True)
class Classes:
    """The class of every place, communicator and link."""

    places: Sequence[int]
    groups: Sequence[int]
    links: Mapping[Link, int]


def copies_on(link: Link, group: Communicator) -> int:
    """How many copies of a communicator meet on this very link: all of them above the nodes."""
    return group.count if link[0].startswith("pod") else 1


class TransferDesk:
    """Turns the calls of ranks into transfers, each class of equal calls into one."""

    def __init__(self, machine: Machine, groups: Sequence[Communicator], classes: Classes) -> None:
        self.machine, self.groups, self.classes = machine, groups, classes
        self.transfers: list[Transfer] = []
        self._numbers: dict[tuple[int, str], int] = {}
        self._traffic: dict[tuple[int, str, float], Traffic] = {}
        self._arities: dict[int, int] = {}
        self._rivals: dict[int, tuple[set[Scope], bool]] = {}
        self._of_rank: dict[int, set[int]] = defaultdict(set)
        self._of_place: dict[tuple[int, Scope], int] = {}
        self._touching: dict[Link, list[int]] = defaultdict(list)
        for g, group in enumerate(groups):
            for index, _ in group.members:
                self._of_place[index, group.scope] = g
                self._of_rank[index].add(g)
            for link in group.loads:
                self._touching[link].append(g)
        self._representative: dict[int, int] = {}
        for g, number in enumerate(classes.groups):
            self._representative.setdefault(number, g)
        self._number_links()

    def _number_links(self) -> None:
        """One index a link class, and what each communicator class puts on its first link."""
        first: dict[int, Link] = {}
        copies: dict[int, int] = defaultdict(int)
        for link, number in self.classes.links.items():
            first.setdefault(number, link)
            copies[number] += 1
        self.index_of = {number: i for i, number in enumerate(first)}
        self.links = [
            LinkClass(_name(link), copies[number], self.machine.topology.capacity(link))
            for number, link in first.items()
        ]
        self.on_link: list[dict[int, tuple[float, float]]] = [{} for _ in first]
        representatives = {link: self.index_of[number] for number, link in first.items()}
        for g, group in enumerate(self.groups):
            for link in group.loads.keys() & representatives.keys():
                self._add(representatives[link], self.classes.groups[g], group, link)

    def _add(self, index: int, number: int, group: Communicator, link: Link) -> None:
        port, nic = self.on_link[index].get(number, (0.0, 0.0))
        more, copies = group.loads[link], copies_on(link, group)
        self.on_link[index][number] = (port + copies * more[0], nic + copies * more[1])

    def at(self, index: int) -> "Desk":
        """The desk as the rank at this place sees it."""
        return Desk(self, index)

    def group_at(self, index: int, scope: Scope) -> int | None:
        return self._of_place.get((index, scope))

    def _arity(self, g: int) -> int:
        """Roles among a communicator's members."""
        if g not in self._arities:
            members = self.groups[g].members
            self._arities[g] = len({self.classes.places[index] for index, _ in members})
        return self._arities[g]

    def rivals(self, g: int) -> tuple[set[Scope], bool]:
        """Scopes that share a link with communicator g, and whether strangers are among them."""
        number = self.classes.groups[g]
        if number not in self._rivals:
            self._rivals[number] = self._found_rivals(self._representative[number], number)
        return self._rivals[number]

    def _found_rivals(self, g: int, number: int) -> tuple[set[Scope], bool]:
        others = {
            h
            for link in self.groups[g].loads
            for h in self._touching[link]
            if self.classes.groups[h] != number
        }
        known = {h for index, _ in self.groups[g].members for h in self._of_rank[index]}
        return {self.groups[h].scope for h in others}, not others <= known

    def transfer(self, g: int, call: Call) -> int:
        """The number of the transfer that this call of a communicator's member takes part in."""
        number = self.classes.groups[g]
        name = call.name if isinstance(call, Collective) else call.key
        key = (number, name)
        if key not in self._numbers:
            self._numbers[key] = len(self.transfers)
            self.transfers.append(self._build(self._representative[number], call, name))
        return self._numbers[key]

    def _build(self, g: int, call: Call, name: str) -> Transfer:
        group = self.groups[g]
        kind = call.kind if isinstance(call, Collective) else "send"
        traffic = self.traffic(g, kind, call.bytes)
        return Transfer(
            name=name,
            cause=call.cause,
            kind=kind,
            arity=self._arity(g),
            latency=traffic.cost.latency,
            size=traffic.size,
            loads=traffic.loads,
            bytes=call.bytes,
            ranks=group.shape.ranks,
            algorithm=traffic.cost.algorithm,
            protocol=traffic.cost.protocol,
        )

    def traffic(self, g: int, kind: str, bytes: float) -> "Traffic":
        """What a call of communicator g puts on the links."""
        key = (g, kind, bytes)
        if key not in self._traffic:
            cost = self.machine.call_cost(kind, bytes, self.groups[g].shape)
            self._traffic[key] = Traffic(cost, *self._loads(g, cost))
        return self._traffic[key]

    def _loads(self, g: int, cost: CallCost) -> tuple[float, tuple[tuple[int, float], ...]]:
        """Bytes on this communicator's busiest link, and per link class the load per such byte."""
        group, number = self.groups[g], self.classes.groups[g]
        size = max((a * cost.port + b * cost.nic for a, b in group.loads.values()), default=0.0)
        if size <= 0.0:
            return 0.0, ()
        loads = {}
        for link in group.loads:
            index = self.index_of[self.classes.links[link]]
            port, nic = self.on_link[index][number]
            loads[index] = (port * cost.port + nic * cost.nic) / size
        return size, tuple(sorted((i, load) for i, load in loads.items() if load > 0.0))


@dataclass(frozen=True, slots=True)
class Traffic:
    """A call as the network sees it: its wire, and size and loads as a `Transfer` has them."""

    cost: CallCost
    size: float
    loads: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Desk:
    """What one rank asks of the transfer desk."""

    desk: TransferDesk
    index: int

    @property
    def interference(self) -> float:
        """The share of their pace that kernels lose to a collective beside them."""
        return self.desk.machine.topology.device.interference

    def transfer(self, call: Call, stage: int) -> int | None:
        """The transfer's number, or None where the rank would only talk to itself."""
        g = self.desk.group_at(self.index, scope_of(call, stage))
        return None if g is None else self.desk.transfer(g, call)

    def alone(self, call: Collective, stage: int) -> tuple[bool, float]:
        """Whether a collective runs among equals only, and its time (s) on idle links."""
        g = self.desk.group_at(self.index, scope_of(call, stage))
        if g is None:
            return True, 0.0
        desk = self.desk
        equals = desk._arity(g) == 1
        traffic = desk.traffic(g, call.kind, call.bytes)
        rates = [desk.links[link].capacity / load for link, load in traffic.loads]
        return equals, traffic.cost.latency + (traffic.size / min(rates) if rates else 0.0)

    def rivals(self, scope: Scope) -> tuple[set[Scope], bool]:
        """Scopes whose traffic shares a link with this one's, and whether strangers cause it."""
        g = self.desk.group_at(self.index, scope)
        return (set(), False) if g is None else self.desk.rivals(g)


def _name(link: Link) -> str:
    kind, *place = link
    return f"{kind} {'.'.join(str(number) for number in place)}"
