"""Collectives of a trace on another network: how long each takes, and which links it loads."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sim.collectives.group import GroupShape
from sim.engine.group_links import group_loads
from sim.engine.machine import Machine
from sim.hardware.cluster.link import link_name
from sim.jobs.recorded.axes import lattice
from sim.jobs.recorded.recording import Group
from sim.jobs.traces.activity import Collective, Route

MESSAGES = "point_to_point"


@dataclass(frozen=True, slots=True)
class Network:
    """A machine in the place of the one that a job of `world` ranks was traced on: rank r is its
    GPU r. On more GPUs data parallelism grows: groups of all ranks span all GPUs, and those that
    extend along the outermost axis as far as the world does so as far as the machine, unless
    that is a `pipeline`'s."""

    machine: Machine
    world: int
    pipeline: bool = False

    def carried(self, call: Collective) -> Collective:
        """The same with the links that it loads there, if its members are known and there."""
        gpus = self._gpus(call)
        return replace(call, route=self._route(call, gpus)) if gpus else call

    def seconds(self, call: Collective) -> float:
        """Seconds of a collective that has its links to itself."""
        if route := call.route or self.carried(call).route:
            flights = (size / rate for _, size, rate in route.links)
            return route.latency + max(flights, default=0.0)
        asked = self.machine.call(_kind(call), call.bytes, self._shape(call))
        return asked.duration(self.machine.state.cost(self.machine.backend.call_cost(asked)))

    def _gpus(self, call: Collective) -> Sequence[int]:
        gpus = self.machine.topology.gpus
        if call.ranks == self.world and call.kind != MESSAGES:
            return range(gpus)
        members = self._grown(call)
        return members if max(members, default=gpus) < gpus else ()

    def _grown(self, call: Collective) -> tuple[int, ...]:
        """The members of a group in the larger world."""
        times, rest = divmod(self.machine.topology.gpus, self.world)
        fixed = self.pipeline or call.kind == MESSAGES or rest or not times
        axes = () if fixed else lattice(call.members)
        if not axes or axes[-1][0] * axes[-1][1] != self.world:
            return call.members
        *inner, (stride, size) = axes
        return Group(first=call.members[0], axes=(*inner, (stride, size * times))).ranks

    def _route(self, call: Collective, gpus: Sequence[int]) -> Route:
        """Of a message the links on its way, of a collective those of its rings or rounds."""
        topology, kind = self.machine.topology, _kind(call)
        cost = self.machine.call_cost(kind, call.bytes, self._shape(call))
        if call.kind == MESSAGES:
            source, target = gpus
            near = topology.node_of(source) == topology.node_of(target)
            way = topology.route(source, target) if source != target else ()
            sizes = dict.fromkeys(way, cost.port if near else cost.nic)
        else:
            loads = group_loads(gpus, topology, self._shape(call), kind, cost.algorithm)
            sizes = {k: port * cost.port + nic * cost.nic for k, (port, nic) in loads.items()}
        links = (
            (link_name(link), size, topology.capacity(link)) for link, size in sizes.items() if size
        )
        return Route(cost.latency, tuple(links))

    def _shape(self, call: Collective) -> GroupShape:
        topology = self.machine.topology
        each = topology.gpus_per_node
        if call.ranks == self.world and call.kind != MESSAGES:
            return GroupShape.of(topology.gpus, each)
        if members := self._grown(call):
            nodes = Counter(rank // each for rank in members)
            return GroupShape(ranks=len(members), nodes=len(nodes), per_node=max(nodes.values()))
        if call.nodes > 1:
            return GroupShape(ranks=call.ranks, nodes=call.nodes)
        return GroupShape.of(call.ranks, each)


def _kind(call: Collective) -> str:
    return "send" if call.kind == MESSAGES else call.kind
