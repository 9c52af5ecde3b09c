"""The traffic of calls: bytes on each class of links, and seconds without other traffic."""

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sim.collectives.interconnect import CallCost
from sim.collectives.schedule import GroupShape
from sim.config.dataclass import dataclass
from sim.engine.communicators import NOBODY, Communicators, Floats, Indices, Scope, scope_of
from sim.engine.costs import Losses, losses
from sim.engine.folded import LinkClass, Traffic
from sim.engine.group_links import number_of
from sim.engine.machine import Machine
from sim.hardware.cluster.topology import Link
from sim.hardware.device import Device
from sim.program.operations import Call, Collective

if TYPE_CHECKING:
    from sim.program.routed import Routed


@dataclass(frozen=True, slots=True)
class Classes:
    """The class of every rank, communicator and link, each numbered from 0 by first appearance."""

    ranks: Indices
    groups: Indices
    links: Indices


class Volume(NamedTuple):
    """The data that a call moves within its group. A message between two ranks uses a communicator
    of `among` ranks; a collective may run beside kernels that take `beside` seconds."""

    kind: str
    bytes: float
    routed: "Routed | None" = None
    times: int = 1
    among: int = 2
    beside: float = 0.0


class TransferDesk:
    """Finds the traffic of communicators' calls on a machine. Transfers of the scopes `beside` run
    while ranks compute."""

    def __init__(
        self,
        machine: Machine,
        groups: Communicators,
        classes: Classes,
        beside: frozenset[Scope] = frozenset(),
    ) -> None:
        self.machine, self.groups, self.classes = machine, groups, classes
        self._traffic: dict[tuple[int, Volume], Traffic] = {}
        self.chosen: dict[tuple[int, Volume], tuple[str, str]] = {}
        self._costs: dict[tuple[Volume, GroupShape], CallCost] = {}
        self._group_loads: dict[tuple[int, int], _GroupLoads] = {}
        self._roles: dict[int, tuple[int, ...]] = {}
        self.class_of: list[int] = classes.groups.tolist()
        self.beside = {
            number
            for place, scope in enumerate(groups.scopes)
            if scope in beside
            for number in classes.groups[_members(groups.group[place])].tolist()
        }
        self.first_group: list[int] = _first(classes.groups).tolist()
        self._first_link = _first(classes.links)
        self._bounds = np.searchsorted(groups.loads.group, np.arange(len(groups.shape) + 1))
        counts = Counter(classes.links.tolist())
        self.links = [
            LinkClass(_name(link), counts[number], machine.topology.capacity(link))
            for number, link in enumerate(self.named_links())
        ]

    def named_links(self) -> Iterator[Link]:
        """A link of each class."""
        return (self.groups.links[number] for number in self._first_link.tolist())

    @cached_property
    def _on_link(self) -> dict[tuple[int, int], tuple[float, Floats]]:
        """The loads of a class of communicators on the first link of a class of links: per byte of
        ports and, for each way, per byte of NICs."""
        loads = self.groups.loads
        here = self._first_link[self.classes.links[loads.link]] == loads.link
        copies = self.groups.times[here]
        keys = self.classes.links[loads.link[here]], self.classes.groups[loads.group[here]]
        rows = zip(
            keys[0].tolist(),
            keys[1].tolist(),
            (loads.port[here] * copies).tolist(),
            loads.nic[here] * copies[:, None],
            strict=True,
        )
        on_link: dict[tuple[int, int], tuple[float, Floats]] = {}
        for link, group, port, nic in rows:
            before = on_link.get((link, group), (0.0, np.zeros_like(nic)))
            on_link[link, group] = before[0] + port, before[1] + nic
        return on_link

    def at(self, index: int) -> "RankTransfers":
        """The traffic of the calls of the rank at a place."""
        return RankTransfers(self, index)

    def group_at(self, index: int, scope: Scope) -> int:
        """The communicator of a scope to which the rank at a place belongs, or `NOBODY`."""
        return self.groups.at(index, scope)

    def roles(self, g: int) -> tuple[int, ...]:
        """The roles among a communicator's members, in order."""
        if g not in self._roles:
            members = np.flatnonzero(self.groups.group[self.groups.scope[g]] == g)
            self._roles[g] = tuple(sorted(set(self.classes.ranks[members].tolist())))
        return self._roles[g]

    def rows(self, g: int) -> slice:
        """The rows of a communicator in the table of loads."""
        return slice(int(self._bounds[g]), int(self._bounds[g + 1]))

    def traffic(self, g: int, call: Call) -> Traffic:
        """The traffic of a call of communicator g."""
        return self.traffic_of(g, volume_of(call))

    def traffic_of(self, g: int, volume: Volume) -> Traffic:
        key = g, volume
        if key not in self._traffic:
            cost, times = self._cost(volume, self.groups.shape[g]), volume.times
            group = self.loads(
                g, number_of(self.machine.topology.network, volume.kind, cost.algorithm)
            )
            size = times * max((p * cost.port + n * cost.nic for p, n in group.busiest), default=0)
            through = [
                (link, times * load / size, times * (port * cost.sent_port + nic * cost.sent_nic))
                for link, port, nic in (group.through if size > 0.0 else ())
                if (load := port * cost.port + nic * cost.nic) > 0.0
            ]
            loads = tuple([(link, load) for link, load, _ in through])
            rates = [self.links[link].capacity / load for link, load in loads]
            at_once = [
                (port * cost.port + nic * cost.nic) / self.links[link].capacity
                for port, nic, link in group.at_once
            ]
            self._traffic[key] = Traffic(
                latency=times * cost.latency,
                size=size,
                loads=loads,
                seconds=size / min(rates) if rates else 0.0,
                ctas=cost.ctas,
                memory=times * cost.memory,
                at_once=times * (cost.latency + max(at_once, default=0.0)),
                sent=tuple([sent for *_, sent in through]),
            )
            self.chosen[key] = cost.algorithm, cost.protocol
        return self._traffic[key]

    def _cost(self, volume: Volume, shape: GroupShape) -> CallCost:
        """The cost of a single collective of a volume; groups of equal shape share it."""
        key = volume, shape
        if key not in self._costs:
            each, beside = volume.bytes / volume.times, volume.beside / volume.times
            self._costs[key] = self.machine.call_cost(
                volume.kind, each, shape, volume.routed, volume.among, beside
            )
        return self._costs[key]

    def loads(self, g: int, way: int) -> "_GroupLoads":
        """The loads of communicator g if its bytes cross the network in this way."""
        key = g, way
        if key not in self._group_loads:
            rows, number = self.rows(g), self.class_of[g]
            loads, (port, nic) = self.groups.loads, self.groups.at_once
            links = self.classes.links[loads.link[rows]].tolist()
            through = [(link, *self._on_link[link, number]) for link in sorted(set(links))]
            self._group_loads[key] = _GroupLoads(
                busiest=_distinct(loads.port[rows].tolist(), loads.nic[rows, way].tolist()),
                through=tuple((link, inner, float(ways[way])) for link, inner, ways in through),
                at_once=_distinct(port[rows].tolist(), nic[rows, way].tolist(), links),
            )
        return self._group_loads[key]


class _GroupLoads(NamedTuple):
    """Loads for each byte of a communicator's ports and NICs: the distinct loads of its links, the
    load of each class of links, and the loads if all groups of its kin call at once."""

    busiest: tuple[tuple[float, float], ...]
    through: tuple[tuple[int, float, float], ...]
    at_once: tuple[tuple[float, float, int], ...]


def _distinct(*columns: list[Any]) -> tuple[Any, ...]:
    """The distinct rows of some columns."""
    return tuple(dict.fromkeys(zip(*columns, strict=True)))


def _first(classes: Indices) -> Indices:
    """The first member of each class."""
    return np.unique(classes, return_index=True)[1]


def _members(groups: Indices) -> Indices:
    """The distinct communicators of a scope."""
    return np.unique(groups[groups != NOBODY])


class RankTransfers:
    """The traffic of one rank's calls; `desk` finds the traffic of all ranks."""

    def __init__(self, desk: TransferDesk, index: int) -> None:
        self.desk, self.index = desk, index
        # Keys are ids of objects. The values keep the objects alive, so no id is used twice.
        self._groups: dict[int, tuple[Scope, int]] = {}  # equal scopes share an object
        self._traffic: dict[tuple[int, int], tuple[Call, Traffic]] = {}

    def _group(self, call: Call, stage: int) -> int:
        """The communicator of this rank that takes part in a call, or `NOBODY`."""
        return self._group_of(scope_of(call, stage))

    def _group_of(self, scope: Scope) -> int:
        known = self._groups.get(id(scope))
        if known is None:
            known = self._groups[id(scope)] = scope, self.desk.group_at(self.index, scope)
        return known[1]

    @property
    def device(self) -> Device:
        """The accelerator of every rank."""
        return self.desk.machine.topology.device

    def links_of(self, stage: int) -> "OwnLinks":
        """The links of this rank, which tell how long its collectives take alone."""
        return OwnLinks(self, stage)

    def group(self, call: Call, stage: int) -> int | None:
        """The communicator that takes part in a call, or None if the rank is alone."""
        g = self._group(call, stage)
        return None if g == NOBODY else g

    def roles(self, g: int) -> tuple[int, ...]:
        """The roles among a communicator's members."""
        return self.desk.roles(g)

    def traffic(self, call: Call, stage: int) -> Traffic:
        """The traffic of a call on the network."""
        key = id(call), stage
        known = self._traffic.get(key)
        if known is None:
            g = self._group(call, stage)
            traffic = NO_TRAFFIC if g == NOBODY else self.desk.traffic(g, call)
            known = self._traffic[key] = call, traffic
        return known[1]


NO_TRAFFIC = Traffic(0.0, 0.0, ())


@dataclass(frozen=True, slots=True)
class OwnLinks:
    """The links of one rank, with the methods of `sim.engine.costs.Links`."""

    desk: RankTransfers
    stage: int

    def seconds(self, call: Collective) -> float:
        """Seconds of a collective when nothing else uses its links."""
        return self.desk.traffic(call, self.stage).alone

    def at_once(self, call: Collective) -> float:
        """Seconds of a collective while all groups of its scope and stage call it at once."""
        return self.desk.traffic(call, self.stage).at_once

    def losses(self, call: Collective) -> Losses:
        """Losses of the kernels that run beside a collective."""
        traffic = self.desk.traffic(call, self.stage)
        ctas = 0 if call.quiet else traffic.ctas
        moved = traffic.memory / traffic.at_once if traffic.at_once else 0.0
        return losses(self.desk.device, ctas=ctas, moved=moved)


def kind_of(call: Call) -> str:
    return call.kind if isinstance(call, Collective) else "send"


def volume_of(call: Call) -> Volume:
    if isinstance(call, Collective):
        beside = 0.0 if call.quiet else call.beside
        return Volume(call.kind, call.bytes, call.routed, call.times, beside=beside)
    return Volume(kind_of(call), call.bytes, among=call.among)


def _name(link: Link) -> str:
    kind, *place = link
    return f"{kind} {'.'.join(str(number) for number in place)}"
