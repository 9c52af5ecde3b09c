"""Who talks to whom: the communicators of a program, and the links that each of them loads."""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from sim.collectives.group import GroupShape
from sim.engine.replicas import AXIS, Place
from sim.hardware.cluster.topology import Link, Topology
from sim.program import Call, Collective, Communicate, Compute, Operation, Program, Send


@dataclass(frozen=True, slots=True)
class Scope:
    """What a call names instead of ranks: mesh axes (among some stages), or a pair of stages."""

    axes: tuple[str, ...] = ()
    stages: tuple[int, ...] | None = None
    pair: tuple[int, int] | None = None

    def position(self, place: Place) -> str | None:
        """The part that a rank plays in it, if any."""
        stage = place.coordinates.get("pp", 0)
        if self.pair is not None:
            return {self.pair[0]: "source", self.pair[1]: "target"}.get(stage)
        return "member" if self.stages is None or stage in self.stages else None

    def group(self, place: Place) -> Hashable:
        """Ranks with equal groups talk to each other."""
        inside = ("pp",) if self.pair is not None else self.axes
        return tuple((a, i) for a, i in place.coordinates.items() if a not in inside)


def scope_of(call: Call, stage: int) -> Scope:
    """The scope of a call that ranks of `stage` make."""
    if isinstance(call, Collective):
        return _among(call.axes, call.stages)
    return _between(stage, call.to) if isinstance(call, Send) else _between(call.source, stage)


@cache
def _among(axes: tuple[str, ...], stages: tuple[int, ...] | None) -> Scope:
    return Scope(axes=axes, stages=stages)


@cache
def _between(source: int, target: int) -> Scope:
    return Scope(pair=(source, target))


def calls_of(operation: Operation) -> Iterator[Call]:
    """All calls of an operation, those inside its work included."""
    if isinstance(operation, Communicate):
        yield from operation.calls
    else:
        yield from operation.work.collectives()


def scopes_of(program: Program) -> list[Scope]:
    """All scopes that a program uses, in order of first use."""
    seen: dict[Scope, None] = {}
    for stage, operations in enumerate(program.stages):
        works = set()
        for operation in operations:
            if isinstance(operation, Compute):
                if id(operation.work) in works:
                    continue
                works.add(id(operation.work))
            for call in calls_of(operation):
                seen[scope_of(call, stage)] = None
    return list(seen)


@dataclass(slots=True)
class Communicator:
    """Members by index into the places, each with its position; `count` copies exist.

    `loads` say per link how many bytes it carries: (a, b) stands for
    a x (bytes through a member's port) + b x (bytes that leave a node), see `CallCost`.
    """

    scope: Scope
    members: list[tuple[int, str]]
    count: int
    shape: GroupShape
    loads: dict[Link, tuple[float, float]]


def communicators(
    scopes: Sequence[Scope], places: Sequence[Place], topology: Topology
) -> list[Communicator]:
    """All communicators among `places` with at least two members."""
    groups: dict[tuple[Scope, Hashable], list[tuple[int, str]]] = {}
    for scope in scopes:
        for index, place in enumerate(places):
            position = scope.position(place)
            if position is not None:
                groups.setdefault((scope, scope.group(place)), []).append((index, position))
    built = (_build(scope, members, places, topology) for (scope, _), members in groups.items())
    return [one for one in built if one.shape.ranks > 1]


def _build(
    scope: Scope, members: list[tuple[int, str]], places: Sequence[Place], topology: Topology
) -> Communicator:
    inside = AXIS in scope.axes
    count = 1 if inside else places[members[0][0]].count
    shape = _shape(members, places, topology, inside)
    loads = _loads(scope, members, places, topology, shape)
    return Communicator(scope, members, count, shape, loads)


def _shape(
    members: list[tuple[int, str]], places: Sequence[Place], topology: Topology, inside: bool
) -> GroupShape:
    copies = {
        topology.node_of(places[i].rank): places[i].count if inside else 1 for i, _ in members
    }
    per_node = Counter(topology.node_of(places[i].rank) for i, _ in members)
    ranks = sum(places[i].count if inside else 1 for i, _ in members)
    return GroupShape(ranks=ranks, nodes=sum(copies.values()), per_node=max(per_node.values()))


def _loads(
    scope: Scope,
    members: list[tuple[int, str]],
    places: Sequence[Place],
    topology: Topology,
    shape: GroupShape,
) -> dict[Link, tuple[float, float]]:
    mine = [places[index] for index, _ in members]
    gpus = [place.rank for place in mine]
    if scope.pair is not None:
        at = dict(zip((position for _, position in members), gpus, strict=True))
        return _route_loads(topology, {(at["source"], at["target"]): 1.0})
    copies = {place.rank: place.pods if AXIS in scope.axes else 1 for place in mine}
    return group_loads(gpus, topology, shape, copies)


def group_loads(
    gpus: list[int], topology: Topology, shape: GroupShape, copies: Mapping[int, int] | None = None
) -> dict[Link, tuple[float, float]]:
    """Per link of a group, bytes per byte of its wire's `port` and of its `nic`.

    `copies` says for how many pods a GPU's pod stands, where not all members are listed.
    """
    if topology.hierarchical:
        return _level_loads(gpus, topology, shape) | _pod_loads(gpus, topology, copies or {})
    ring = dict.fromkeys(zip(gpus, gpus[1:] + gpus[:1], strict=True), 1.0)
    return _route_loads(topology, ring)


def _route_loads(
    topology: Topology, hops: dict[tuple[int, int], float]
) -> dict[Link, tuple[float, float]]:
    loads: dict[Link, tuple[float, float]] = {}
    for (source, target), weight in hops.items():
        local = topology.node_of(source) == topology.node_of(target)
        for link in topology.route(source, target):
            port, nic = loads.get(link, (0.0, 0.0))
            loads[link] = (port + weight, nic) if local else (port, nic + weight)
    return loads


def _level_loads(
    gpus: list[int], topology: Topology, shape: GroupShape
) -> dict[Link, tuple[float, float]]:
    """Ports carry the intra-node bytes; a node's members share what leaves it over their NICs."""
    loads: dict[Link, tuple[float, float]] = {}

    def add(link: Link, port: float, nic: float) -> None:
        before = loads.get(link, (0.0, 0.0))
        loads[link] = (before[0] + port, before[1] + nic)

    behind_port = topology.node is not None and topology.node.fabric == "pcie"
    per_node = Counter(topology.node_of(gpu) for gpu in gpus)
    for gpu in gpus:
        if per_node[topology.node_of(gpu)] > 1:
            add(("port-up", gpu), 1.0, 0.0)
            add(("port-down", gpu), 1.0, 0.0)
        if shape.nodes > 1:
            node, nic = topology.nic_of(gpu)
            share = 1.0 / per_node[topology.node_of(gpu)]
            add(("nic-up", node, nic), 0.0, share)
            add(("nic-down", node, nic), 0.0, share)
            if behind_port:
                add(("port-up", gpu), 0.0, share)
                add(("port-down", gpu), 0.0, share)
    return loads


def _pod_loads(
    gpus: Sequence[int], topology: Topology, copies: Mapping[int, int]
) -> dict[Link, tuple[float, float]]:
    """What crosses a pod's uplinks: all that a node of the group sends, once in each direction."""
    found = {topology.pod_of(topology.node_of(gpu)): copies.get(gpu, 1) for gpu in gpus}
    if sum(found.values()) < 2:
        return {}
    ways = ("pod-up", "pod-down")
    return {(way, pod): (0.0, 1.0) for pod in sorted(found) for way in ways}
