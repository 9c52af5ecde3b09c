"""Changes to a trace: faster kernels, a faster host, another device, network or overlap."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace
from itertools import accumulate
from typing import Any, Literal

from sim.collectives.schedule import GroupShape
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.engine.group_loads import group_loads, shape_of
from sim.engine.machine import Machine
from sim.hardware.cluster.link_names import link_name
from sim.jobs.recorded.axes import lattice
from sim.jobs.recorded.recording import Group
from sim.jobs.traces.devices import Devices
from sim.jobs.traces.rank_trace import Collective, Kernel, RankTrace, Route

MESSAGES = "point_to_point"


@dataclass(frozen=True, slots=True)
class Network:
    """A machine that replaces the machine of the trace. The traced job has `world` ranks, and rank
    r is GPU r of the new machine.

    On more GPUs data parallelism grows. A group grows with it along its outermost axis, if this
    axis extends over the whole world; in a `pipeline`, no group grows.
    """

    machine: Machine
    world: int
    pipeline: bool = False
    routes: dict[tuple[Any, ...], Route] = field(default_factory=dict, compare=False, repr=False)

    def carried(self, call: Collective) -> Collective:
        """The collective with the links that it loads, if its members are known and on this
        machine."""
        gpus = self._gpus(call)
        if not gpus:
            return call
        key = call.kind, call.bytes, call.ranks, call.nodes, gpus, call.beside
        if key not in self.routes:
            self.routes[key] = self._route(call, gpus)
        return replace(call, route=self.routes[key])

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
        """The links that a message passes, or that the rings or rounds of a collective load."""
        topology, kind = self.machine.topology, _kind(call)
        cost = self.machine.call_cost(kind, call.bytes, self._shape(call), beside=call.beside)
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
            return shape_of(range(topology.gpus), topology)
        if members := self._grown(call):
            return shape_of(members, topology)
        if call.nodes > 1:
            return GroupShape(ranks=call.ranks, nodes=call.nodes)
        return GroupShape.of(call.ranks, each)


def _kind(call: Collective) -> str:
    return "send" if call.kind == MESSAGES else call.kind


Overlap = Literal["as-is", "none", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Changes to a replay. `kernels` are pairs (part of a name, factor on the seconds), `host` is a
    factor on the host's seconds.

    `machine` replaces the network that was measured (`Network`). `devices` are the device on which
    kernels ran and the device to which they move. With `overlap` "none" the kernels of all streams
    run one after the other, as they were launched; with "full" no kernel and no host waits for a
    collective.
    """

    kernels: tuple[tuple[str, float], ...] = ()
    host: float = 1.0
    machine: Machine | None = None
    devices: Devices | None = None
    overlap: Overlap = "as-is"

    def of(self, ranks: Sequence[RankTrace]) -> list[RankTrace]:
        """The ranks with all changes. Raises `InputError` for kernels that no trace has, and for
        collectives that a trace does not describe."""
        for part, _ in self.kernels:
            if not any(part in kernel.name for rank in ranks for kernel in rank.kernels):
                names = sorted({kernel.name.split("(")[0] for kernel in ranks[0].kernels})[:3]
                remedy = f"there are {', '.join(names) or 'none'}"
                raise InputError("--kernels", f"no kernel is called {part!r}", remedy)
        moved = ranks if self.devices is None else self.devices.of(ranks)
        return [self._rank(rank) for rank in self.carried(moved)]

    def carried(self, ranks: Sequence[RankTrace]) -> list[RankTrace]:
        """The ranks with collectives as the machine's network carries them, if a machine is
        given."""
        return [rank if self.machine is None else _elsewhere(rank, self.machine) for rank in ranks]

    def _rank(self, rank: RankTrace) -> RankTrace:
        kernels = _OVERLAP[self.overlap]([self._faster(kernel) for kernel in rank.kernels])
        host = (replace(item, seconds=item.seconds * self.host) for item in rank.host)
        if self.overlap == "full":
            host = (replace(item, awaited=_computed(item.awaited, kernels)) for item in host)
        return replace(rank, kernels=kernels, host=tuple(host))

    def _faster(self, kernel: Kernel) -> Kernel:
        factors = [factor for part, factor in self.kernels if part in kernel.name]
        *_, factor = accumulate(factors, lambda a, b: a * b, initial=1.0)
        changed = replace(kernel, seconds=kernel.seconds * factor)
        if (call := kernel.collective) is None or (route := call.route) is None:
            return changed
        links = ((link, factor * size, rate) for link, size, rate in route.links)
        faster = Route(factor * route.latency, tuple(links))
        return replace(changed, collective=replace(call, route=faster))


def _elsewhere(rank: RankTrace, machine: Machine) -> RankTrace:
    calls = (kernel.collective for kernel in rank.kernels if kernel.collective)
    network = Network(machine, rank.world, any(call.kind == MESSAGES for call in calls))
    return replace(rank, kernels=tuple(_carried(kernel, network) for kernel in rank.kernels))


def _carried(kernel: Kernel, network: Network) -> Kernel:
    """A collective's kernel as the library runs it on another network; other kernels unchanged."""
    call = kernel.collective
    if call is None:
        return kernel
    if lacks := call.lacks if call.bytes else "size":
        fault = f"{kernel.name.split('(')[0]} has no {lacks} in the trace"
        remedy = "record the trace with record_shapes=True and torch 2.1 or later"
        raise InputError("--topology", fault, remedy)
    carried = network.carried(call)
    return replace(kernel, seconds=network.seconds(carried), tail=0.0, collective=carried)


def _in_a_row(kernels: Sequence[Kernel]) -> tuple[Kernel, ...]:
    """All kernels on one stream, in the order of their launches."""
    return tuple(replace(kernel, stream="stream", after=()) for kernel in kernels)


def _beside(kernels: Sequence[Kernel]) -> tuple[Kernel, ...]:
    """No kernel waits for a collective; a collective still waits for the kernels that make its
    data."""
    return tuple(
        kernel if kernel.collective else replace(kernel, after=_computed(kernel.after, kernels))
        for kernel in kernels
    )


def _computed(numbers: Iterable[int], kernels: Sequence[Kernel]) -> tuple[int, ...]:
    """The `numbers` of kernels that are not collectives."""
    return tuple(number for number in numbers if kernels[number].collective is None)


_OVERLAP: dict[Overlap, Callable[[Sequence[Kernel]], tuple[Kernel, ...]]] = {
    "as-is": tuple, "none": _in_a_row, "full": _beside,
}  # fmt: skip
