"""Collectives of a trace on another network: how long each takes, and which links it loads."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sim.collectives.group import GroupShape
from sim.engine.group_links import group_loads
from sim.engine.machine import Machine
from sim.traces.activity import Collective, Route

_MESSAGES = "point_to_point"


@dataclass(frozen=True, slots=True)
class Network:
    """A machine in the place of the one that a job of `world` ranks was traced on: rank r is its
    GPU r, and groups of all ranks span all of its GPUs."""

    machine: Machine
    world: int

    def carried(self, call: Collective) -> Collective:
        """The same with the links that it loads there, if its members are known and there."""
        gpus = self._gpus(call)
        return replace(call, route=self._route(call, gpus)) if gpus else call

    def seconds(self, call: Collective) -> float:
        """Seconds of a collective that has its links to itself."""
        if route := self.carried(call).route:
            flights = (size / rate for _, size, rate in route.links)
            return route.latency + max(flights, default=0.0)
        asked = self.machine.call(_kind(call), call.bytes, self._shape(call))
        return asked.duration(self.machine.state.cost(self.machine.backend.call_cost(asked)))

    def _gpus(self, call: Collective) -> Sequence[int]:
        gpus = self.machine.topology.gpus
        if call.ranks == self.world and call.kind != _MESSAGES:
            return range(gpus)
        return call.members if max(call.members, default=gpus) < gpus else ()

    def _route(self, call: Collective, gpus: Sequence[int]) -> Route:
        """Of a message the links on its way, of a collective those of its rings or rounds."""
        topology, kind = self.machine.topology, _kind(call)
        cost = self.machine.call_cost(kind, call.bytes, self._shape(call))
        if call.kind == _MESSAGES:
            source, target = gpus
            near = topology.node_of(source) == topology.node_of(target)
            way = topology.route(source, target) if source != target else ()
            sizes = dict.fromkeys(way, cost.port if near else cost.nic)
        else:
            loads = group_loads(gpus, topology, self._shape(call), kind, cost.algorithm)
            sizes = {k: port * cost.port + nic * cost.nic for k, (port, nic) in loads.items()}
        links = ((link, size, topology.capacity(link)) for link, size in sizes.items() if size)
        return Route(cost.latency, tuple(links))

    def _shape(self, call: Collective) -> GroupShape:
        topology = self.machine.topology
        each = topology.gpus_per_node
        if call.ranks == self.world and call.kind != _MESSAGES:
            return GroupShape.of(topology.gpus, each)
        if call.members:
            nodes = Counter(rank // each for rank in call.members)
            return GroupShape(ranks=call.ranks, nodes=len(nodes), per_node=max(nodes.values()))
        if call.nodes > 1:
            return GroupShape(ranks=call.ranks, nodes=call.nodes)
        return GroupShape.of(call.ranks, each)


def _kind(call: Collective) -> str:
    return "send" if call.kind == _MESSAGES else call.kind
