"""Who talks to whom: the communicators of a program, and the links that each of them loads.

On switched clusters all of it is arithmetic on arrays: groups load the ports, NICs and pod uplinks
of their members. On tori, dragonflies and meshes of cables the routes of a ring in rank order are
summed. Nothing here grows with the number of replicas.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.collectives.group import GroupShape
from sim.engine.replicas import Representatives
from sim.hardware.cluster.topology import Link, Topology
from sim.program.operations import Call, Collective, Send
from sim.program.program import Program

Indices = NDArray[np.int64]
Floats = NDArray[np.float64]
NOBODY = -1


@dataclass(frozen=True, slots=True)
class Scope:
    """What a call names instead of ranks: mesh axes (among some stages), or a pair of stages."""

    axes: tuple[str, ...] = ()
    stages: tuple[int, ...] | None = None
    pair: tuple[int, int] | None = None


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


def scopes_of(program: Program) -> list[Scope]:
    """All scopes that a program uses, in order of first use."""
    scopes: dict[Scope, None] = {}
    for own in dict.fromkeys(program.stages):
        stage = program.stages.index(own)
        scopes |= dict.fromkeys(scope_of(call, stage) for call in own.calls)
    for source, target in program.neighbours():
        scopes[_between(source, target)] = None
    return list(scopes)


class Loads(NamedTuple):
    """Which group loads which link, and how much, in arrays of one length: `port` x (bytes through
    a member's port) + `nic` x (bytes that leave a node), see `CallCost`."""

    group: Indices
    link: Indices
    port: Floats
    nic: Floats


@dataclass(frozen=True, eq=False)
class Communicators:
    """All groups of ranks that talk to each other, numbered.

    `group` is the number of the group of each scope that each rank is in [scopes, ranks], or
    `NOBODY`; `scope` is each group's scope, `shape` how it lies on the nodes, `copies` how many
    equal groups it stands for. `links` are the links that are loaded.
    """

    scopes: Sequence[Scope]
    group: Indices
    scope: Indices
    shape: Sequence[GroupShape]
    copies: Indices
    links: Sequence[Link]
    loads: Loads
    _number: Mapping[Scope, int] = field(init=False)

    def __post_init__(self) -> None:
        numbers = {scope: number for number, scope in enumerate(self.scopes)}
        object.__setattr__(self, "_number", numbers)

    def at(self, rank: int, scope: Scope) -> int:
        """The group of a scope that a rank (by its place) is in, or `NOBODY`."""
        number = self._number.get(scope)
        return NOBODY if number is None else int(self.group[number, rank])


def communicators(
    scopes: Sequence[Scope], ranks: Representatives, topology: Topology
) -> Communicators:
    """All groups among some ranks that have at least two members."""
    builder = _Builder(ranks, topology)
    for scope in scopes:
        builder.add(scope)
    return builder.finished()


class _Builder:
    def __init__(self, ranks: Representatives, topology: Topology) -> None:
        self.ranks, self.topology = ranks, topology
        self.stage = ranks.at("pp")
        self.node = ranks.rank // topology.gpus_per_node
        self.links = _Links(topology)
        self.scopes: list[Scope] = []
        self.groups: list[Indices] = []
        self.scope: list[int] = []
        self.shapes: list[GroupShape] = []
        self.copies: list[int] = []
        self.loads: list[Loads] = []

    def add(self, scope: Scope) -> None:
        """The groups of one scope."""
        number, members, own = self._grouped(scope)
        self.scopes.append(scope)
        self.groups.append(np.full(len(self.ranks.rank), NOBODY, dtype=np.int64))
        if not len(members):
            return
        inside = self.ranks.axis in scope.axes
        weight = self.ranks.count[members] if inside else np.ones_like(members)
        sizes = np.bincount(own, weights=weight)
        kept = np.flatnonzero(sizes > 1)
        if not len(kept):
            return
        place = np.full(number, NOBODY, dtype=np.int64)
        place[kept] = len(self.shapes) + np.arange(len(kept))
        alive = place[own] != NOBODY
        members, own, weight = members[alive], place[own[alive]], weight[alive]
        first = len(self.shapes)
        self._shaped(own - first, members, weight, len(kept))
        self.groups[-1][members] = own
        self.scope += [len(self.scopes) - 1] * len(kept)
        representative = np.zeros(len(kept), dtype=np.int64)
        representative[own - first] = members
        copies = np.ones_like(representative) if inside else self.ranks.count[representative]
        self.copies += copies.tolist()
        self.loads.append(self._loaded(scope, own, members, first))

    def _grouped(self, scope: Scope) -> tuple[int, Indices, Indices]:
        """How many groups there are, their members, and each one's group."""
        stages = scope.pair or scope.stages
        everybody = np.arange(len(self.stage))
        members = everybody if stages is None else np.flatnonzero(np.isin(self.stage, stages))
        inside = ("pp",) if scope.pair is not None else scope.axes
        key = np.zeros(len(members), dtype=np.int64)
        for axis, at in self.ranks.coordinates.items():
            if axis not in inside:
                key = key * (int(at.max(initial=0)) + 1) + at[members]
        names, own = np.unique(key, return_inverse=True)
        return len(names), members, own

    def _shaped(self, own: Indices, members: Indices, weight: Indices, count: int) -> None:
        nodes = int(self.node.max()) + 1
        pairs, first, listed = np.unique(
            own * nodes + self.node[members], return_index=True, return_counts=True
        )
        groups = pairs // nodes
        ranks = np.bincount(own, weights=weight, minlength=count)
        spans = np.bincount(groups, weights=weight[first], minlength=count)
        most = np.zeros(count, dtype=np.int64)
        np.maximum.at(most, groups, listed)
        for rank, span, each in zip(ranks.tolist(), spans.tolist(), most.tolist(), strict=True):
            self.shapes.append(_shape(int(rank), int(span), each))

    def _loaded(self, scope: Scope, own: Indices, members: Indices, first: int) -> Loads:
        gpus = self.ranks.rank[members]
        if scope.pair is not None:
            return self._messages(scope.pair, own, members)
        if not self.topology.hierarchical:
            return self._rings(own, gpus)
        pods = self.ranks.pods[members] if self.ranks.axis in scope.axes else np.ones_like(own)
        across = np.array([shape.nodes > 1 for shape in self.shapes[first:]])[own - first]
        return self.links.of_members(own, gpus, across, pods)

    def _messages(self, pair: tuple[int, int], own: Indices, members: Indices) -> Loads:
        order = np.argsort(own, kind="stable")
        stage = self.stage[members][order]
        gpus, groups = self.ranks.rank[members][order], own[order]
        ways = zip(
            groups[stage == pair[0]].tolist(),
            gpus[stage == pair[0]].tolist(),
            gpus[stage == pair[1]].tolist(),
            strict=True,
        )
        return self.links.of_routes((group, [(source, target)]) for group, source, target in ways)

    def _rings(self, own: Indices, gpus: Indices) -> Loads:
        rings: dict[int, list[int]] = {}
        for group, gpu in zip(own.tolist(), gpus.tolist(), strict=True):
            rings.setdefault(group, []).append(gpu)
        return self.links.of_routes(
            (group, list(zip(ring, ring[1:] + ring[:1], strict=True)))
            for group, ring in rings.items()
        )

    def finished(self) -> Communicators:
        """All groups, their links numbered anew without those that nobody loads."""
        parts = self.loads or [Loads(*(np.empty(0, dtype=kind) for kind in "llff"))]
        group, link, port, nic = (np.concatenate(column) for column in zip(*parts, strict=True))
        names, link = np.unique(link, return_inverse=True)
        return Communicators(
            scopes=self.scopes,
            group=np.array(self.groups, dtype=np.int64).reshape(len(self.scopes), -1),
            scope=np.array(self.scope, dtype=np.int64),
            shape=self.shapes,
            copies=np.array(self.copies, dtype=np.int64),
            links=[self.links.name(number) for number in names.tolist()],
            loads=Loads(group, link.astype(np.int64), port, nic),
        )


@cache
def _shape(ranks: int, nodes: int, per_node: int) -> GroupShape:
    return GroupShape(ranks=ranks, nodes=nodes, per_node=per_node)


_KINDS = ("port-up", "port-down", "nic-up", "nic-down", "pod-up", "pod-down")
_ROOM = 1 << 40  # more places than any kind of link has


class _Links:
    """Links as numbers: kind x room + place for those of switches, running numbers for others."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.slots = topology.gpus_per_node
        self.behind_port = topology.node is not None and topology.node.network_through_ports
        self.nics = topology.network.nics if topology.network is not None else 0
        used = range(min(topology.gpus, self.slots)) if self.nics else ()
        self.nic_of_slot = np.array([topology.nic_of(slot)[1] for slot in used], dtype=np.int64)
        self._cables: dict[Link, int] = {}
        self._named: list[Link] = []

    def name(self, number: int) -> Link:
        """The link of a number."""
        kind, place = divmod(number, _ROOM)
        if kind == len(_KINDS):
            return self._named[place]
        if _KINDS[kind].startswith("nic"):
            return (_KINDS[kind], *divmod(place, max(self.nics, 1)))
        return (_KINDS[kind], place)

    def of_members(
        self, own: Indices, gpus: Indices, across: NDArray[np.bool_], pods: Indices
    ) -> Loads:
        """Ports carry what stays in a node; its members share what leaves it over their NICs; all
        that a node of the group sends crosses a pod's uplinks once in each direction."""
        node = gpus // self.slots
        _, inverse, counts = np.unique(
            own * (int(node.max(initial=0)) + 1) + node, return_inverse=True, return_counts=True
        )
        near = counts[inverse]
        inner, outer = near > 1, across & (self.nics > 0)
        share = 1.0 / near
        parts = [
            self._part(kind, own[inner], gpus[inner], 1.0, 0.0) for kind in ("port-up", "port-down")
        ]
        if outer.any():
            nic = node * max(self.nics, 1) + self.nic_of_slot[gpus % self.slots]
            kinds = [("nic-up", nic), ("nic-down", nic)]
            if self.behind_port:
                kinds += [("port-up", gpus), ("port-down", gpus)]
            parts += [
                self._part(kind, own[outer], at[outer], 0.0, share[outer]) for kind, at in kinds
            ]
        if self.topology.pods > 1:
            parts.append(self._uplinks(own, node, pods))
        return _summed(parts)

    def _part(
        self, kind: str, own: Indices, place: Indices, port: float, nic: float | Floats
    ) -> Loads:
        link = _KINDS.index(kind) * _ROOM + place
        size = np.ones(len(own))
        return Loads(own, link, size * port, size * nic)

    def _uplinks(self, own: Indices, node: Indices, pods: Indices) -> Loads:
        nodes, position = np.unique(node, return_inverse=True)
        pod = np.array([self.topology.pod_of(n) for n in nodes.tolist()])[position]
        room = int(pod.max(initial=0)) + 1
        pairs, first = np.unique(own * room + pod, return_index=True)
        groups, places = pairs // room, pairs % room
        spans = np.bincount(groups, weights=pods[first])
        crosses = spans[groups] > 1
        return _summed(
            [
                self._part(kind, groups[crosses], places[crosses], 0.0, 1.0)
                for kind in ("pod-up", "pod-down")
            ]
        )

    def of_routes(self, routes: Iterable[tuple[int, Sequence[tuple[int, int]]]]) -> Loads:
        """What groups load whose members send to each other by these (source, target)."""
        rows = [
            (group, self._number(link), float(local), float(not local))
            for group, hops in routes
            for source, target in hops
            for local in [source // self.slots == target // self.slots]
            for link in self.topology.route(source, target)
        ]
        if not rows:
            return Loads(*(np.empty(0, dtype=kind) for kind in "llff"))
        return _summed([Loads(*(np.array(column) for column in zip(*rows, strict=True)))])

    def _number(self, link: Link) -> int:
        kind, *place = link
        if kind in _KINDS:
            at = place[0] * max(self.nics, 1) + place[1] if kind.startswith("nic") else place[0]
            return _KINDS.index(kind) * _ROOM + at
        if link not in self._cables:
            self._cables[link] = len(self._named)
            self._named.append(link)
        return len(_KINDS) * _ROOM + self._cables[link]


def _summed(parts: Sequence[Loads]) -> Loads:
    """Loads of one group on one link as one row."""
    group, link, port, nic = (np.concatenate(column) for column in zip(*parts, strict=True))
    if not len(group):
        return Loads(group, link, port, nic)
    order = np.lexsort((link, group))
    group, link, port, nic = group[order], link[order], port[order], nic[order]
    first = np.concatenate(([True], (np.diff(group) != 0) | (np.diff(link) != 0)))
    starts = np.flatnonzero(first)
    return Loads(
        group[starts], link[starts], np.add.reduceat(port, starts), np.add.reduceat(nic, starts)
    )


def group_loads(
    gpus: Sequence[int], topology: Topology, shape: GroupShape
) -> dict[Link, tuple[float, float]]:
    """Per link of one group, bytes per byte of its wire's `port` and of its `nic`."""
    links, members = _Links(topology), np.array(gpus, dtype=np.int64)
    own = np.zeros_like(members)
    if topology.hierarchical:
        loads = links.of_members(own, members, own == 0 if shape.nodes > 1 else own > 0, own + 1)
    else:
        ring = list(pairwise([*gpus, gpus[0]]))
        loads = links.of_routes([(0, ring)])
    return {
        links.name(link): (port, nic)
        for link, port, nic in zip(
            loads.link.tolist(), loads.port.tolist(), loads.nic.tolist(), strict=True
        )
    }
