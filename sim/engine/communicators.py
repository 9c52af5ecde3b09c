"""Who talks to whom: the communicators of a program, and the links that each of them loads.

On switched clusters all of it is arithmetic on arrays: groups load the ports, NICs and pod uplinks
of their members. On tori, dragonflies and meshes of cables the routes of all hops are summed
(`sim.engine.ways`). Nothing here grows with the number of replicas.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.collectives.group import GroupShape
from sim.engine.replicas import Representatives
from sim.engine.ways import EVERY, PAIRS, Hop, hops, number_of, ways
from sim.hardware.cluster.host import HOST_LINKS
from sim.hardware.cluster.topology import Link, Topology
from sim.program.operations import Call, Collective, Copy, HostLink, Send
from sim.program.program import Program

Indices = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
NOBODY = -1


@dataclass(frozen=True, slots=True)
class Scope:
    """What a call names instead of ranks: mesh axes (among some stages), a pair of stages, or the
    links to its own host."""

    axes: tuple[str, ...] = ()
    stages: tuple[int, ...] | None = None
    pair: tuple[int, int] | None = None
    path: tuple[HostLink, ...] = ()


def scope_of(call: Call, stage: int) -> Scope:
    """The scope of a call that ranks of `stage` make."""
    if isinstance(call, Copy):
        return _over(call.path)
    if isinstance(call, Collective):
        return _among(call.axes, call.stages)
    return _between(stage, call.to) if isinstance(call, Send) else _between(call.source, stage)


@cache
def _among(axes: tuple[str, ...], stages: tuple[int, ...] | None) -> Scope:
    return Scope(axes=axes, stages=stages)


@cache
def _over(path: tuple[HostLink, ...]) -> Scope:
    return Scope(path=path)


@cache
def _between(source: int, target: int) -> Scope:
    return Scope(pair=(source, target))


def scopes_of(program: Program) -> dict[Scope, set[str]]:
    """All scopes that a program uses, in order of first use, and their collectives' kinds."""
    scopes: dict[Scope, set[str]] = {}
    for own in dict.fromkeys(program.stages):
        stage = program.stages.index(own)
        for call in own.calls:
            kinds = scopes.setdefault(scope_of(call, stage), set())
            if isinstance(call, Collective):
                kinds.add(call.kind)
    for source, target in program.neighbours():
        scopes.setdefault(_between(source, target), set())
    for scope in scopes:
        if unknown := set(scope.axes) - set(program.mesh):
            raise ValueError(f"a collective over {min(unknown)!r}, which is no axis of the mesh")
    return scopes


class Loads(NamedTuple):
    """Which group loads which link, and how much, in arrays of one length: `port` x (bytes through
    a member's port) + `nic` x (bytes that leave a node), see `CallCost`. `nic` has a column for
    each way between nodes (`sim.engine.ways`)."""

    group: Indices
    link: Indices
    port: Floats
    nic: Floats


@dataclass(frozen=True, eq=False)
class Communicators:
    """All groups of ranks that talk to each other, numbered.

    `group` is the number of the group of each scope that each rank is in [scopes, ranks], or
    `NOBODY`; `scope` is each group's scope, `shape` how it lies on the nodes, `copies` how many
    equal groups it stands for; groups of one `kin` have a scope and a stage in common, and so they
    call at once. `links` are the links that are loaded.
    """

    scopes: Sequence[Scope]
    group: Indices
    scope: Indices
    shape: Sequence[GroupShape]
    copies: Indices
    kin: Indices
    links: Sequence[Link]
    loads: Loads

    @cached_property
    def times(self) -> Indices:
        """How often each row of the loads is on its link: above the nodes all copies of a
        communicator meet on the same ones."""
        pods = np.array([link[0].startswith("pod") for link in self.links], dtype=bool)
        meeting = pods[self.loads.link]
        return np.where(meeting, self.copies[self.loads.group], 1)

    @cached_property
    def at_once(self) -> tuple[Floats, Floats]:
        """For each row of the loads, `port` and `nic` of all groups of its kin on that link."""
        loads = self.loads
        key = self.kin[loads.group] * len(self.links) + loads.link
        names, own = np.unique(key, return_inverse=True)
        port, nic = np.zeros(len(names)), np.zeros((len(names), loads.nic.shape[1]))
        np.add.at(port, own, loads.port * self.times)
        np.add.at(nic, own, loads.nic * self.times[:, None])
        return port[own], nic[own]

    @cached_property
    def _number(self) -> Mapping[Scope, int]:
        return {scope: number for number, scope in enumerate(self.scopes)}

    def at(self, rank: int, scope: Scope) -> int:
        """The group of a scope that a rank (by its place) is in, or `NOBODY`."""
        number = self._number.get(scope)
        return NOBODY if number is None else int(self.group[number, rank])


class _Members(NamedTuple):
    """Ranks (by their place) in groups of scopes, arrays of one length."""

    scope: Indices
    group: Indices
    rank: Indices


class _Spread(NamedTuple):
    """For each member of a group how many ranks it stands for, and in how many pods."""

    ranks: Indices
    pods: Indices


def communicators(
    kinds: Mapping[Scope, Collection[str]], ranks: Representatives, topology: Topology
) -> Communicators:
    """All groups among some ranks that have at least two members, or copy to their hosts."""
    scopes = list(kinds)
    builder = _Grouping(kinds, ranks, topology)
    messages = [number for number, scope in enumerate(scopes) if scope.pair is not None]
    for number, scope in enumerate(scopes):
        if scope.pair is None:
            builder.add([number])
    if messages:
        builder.add(messages)
    return builder.finished()


class _Grouping:
    def __init__(
        self, kinds: Mapping[Scope, Collection[str]], ranks: Representatives, topology: Topology
    ) -> None:
        scopes = list(kinds)
        self.kinds, self.scopes, self.ranks, self.topology = kinds, scopes, ranks, topology
        self.stage = ranks.at("pp")
        self.node = ranks.rank // topology.gpus_per_node
        self.links = _Links(topology)
        self.group = np.full((len(scopes), len(ranks.rank)), NOBODY, dtype=np.int64)
        self.scope: list[int] = []
        self.shapes: list[GroupShape] = []
        self.copies: list[int] = []
        self.kin: list[int] = []
        self.loads: list[Loads] = []

    def add(self, numbers: Sequence[int]) -> None:
        """The groups of some scopes: of one, or of several pairs of stages."""
        members = self._members(numbers)
        inside = self.ranks.axis in self.scopes[numbers[0]].axes
        weight = self.ranks.count[members.rank] if inside else np.ones_like(members.rank)
        sizes = np.bincount(members.group, weights=weight)
        kept = np.flatnonzero(sizes > (0 if self.scopes[numbers[0]].path else 1))
        if not len(kept):
            return
        place = np.full(len(sizes), NOBODY, dtype=np.int64)
        place[kept] = np.arange(len(kept))
        alive = place[members.group] != NOBODY
        members = _Members(*(column[alive] for column in members))
        members, weight = members._replace(group=place[members.group]), weight[alive]
        first = len(self.shapes)
        self._shaped(members, weight, len(kept))
        self.group[members.scope, members.rank] = first + members.group
        representative, scope = np.zeros((2, len(kept)), dtype=np.int64)
        representative[members.group], scope[members.group] = members.rank, members.scope
        self.scope += scope.tolist()
        copies = np.ones_like(representative) if inside else self.ranks.count[representative]
        self.copies += copies.tolist()
        stages = int(self.stage.max(initial=0)) + 1
        self.kin += (scope * stages + self.stage[representative]).tolist()
        self.loads.append(self._loaded(members, first))

    def _members(self, numbers: Sequence[int]) -> _Members:
        """Who is in which group of these scopes, which all leave out the same axes."""
        scope = self.scopes[numbers[0]]
        inside = ("pp",) if scope.pair is not None else scope.axes
        key = np.zeros_like(self.stage)
        for axis, at in self.ranks.coordinates.items():
            if axis not in inside:
                key = key * (int(at.max(initial=0)) + 1) + at
        names, own = np.unique(key, return_inverse=True)
        parts = [
            (np.full(len(ranks), number), place * len(names) + own[ranks], ranks)
            for place, number in enumerate(numbers)
            for ranks in [self._taking_part(self.scopes[number])]
        ]
        return _Members(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def _taking_part(self, scope: Scope) -> Indices:
        """The ranks of a scope's stages."""
        stages = scope.pair or scope.stages
        if stages is None:
            return np.arange(len(self.stage))
        return np.flatnonzero(np.logical_or.reduce([self.stage == stage for stage in stages]))

    def _shaped(self, members: _Members, weight: Indices, count: int) -> None:
        nodes = int(self.node.max()) + 1
        pairs, first, listed = np.unique(
            members.group * nodes + self.node[members.rank], return_index=True, return_counts=True
        )
        groups = pairs // nodes
        ranks = np.bincount(members.group, weights=weight, minlength=count)
        spans = np.bincount(groups, weights=weight[first], minlength=count)
        most = np.zeros(count, dtype=np.int64)
        np.maximum.at(most, groups, listed)
        for rank, span, each in zip(ranks.tolist(), spans.tolist(), most.tolist(), strict=True):
            self.shapes.append(_shape(int(rank), int(span), each))

    def _loaded(self, members: _Members, first: int) -> Loads:
        gpus, own = self.ranks.rank[members.rank], first + members.group
        if path := self.scopes[int(members.scope[0])].path:
            return self.links.of_hosts(own, gpus, path)
        pairs = np.array([scope.pair or (NOBODY, NOBODY) for scope in self.scopes])
        messages = pairs[members.scope[0], 0] != NOBODY
        stage = self.stage[members.rank]
        everybody = np.ones(len(own), dtype=bool)
        sends = stage == pairs[members.scope, 0] if messages else everybody
        receives = stage == pairs[members.scope, 1] if messages else everybody
        if not self.topology.hierarchical:
            if messages:
                return self._messages(own, gpus, sends)
            return self._hops(own, gpus, self.kinds[self.scopes[int(members.scope[0])]])
        inside = self.ranks.axis in self.scopes[int(members.scope[0])].axes
        once = np.ones_like(own)
        pods = self.ranks.pods[members.rank] if inside else once
        count = self.ranks.count[members.rank] if inside else once
        across = np.array([shape.nodes > 1 for shape in self.shapes[first:]])[members.group]
        return self.links.of_members(own, gpus, across, _Spread(count, pods), sends, receives)

    def _messages(self, own: Indices, gpus: Indices, sends: Flags) -> Loads:
        """Of groups of two, one of which sends."""
        targets = dict(zip(own[~sends].tolist(), gpus[~sends].tolist(), strict=True))
        sources = zip(own[sends].tolist(), gpus[sends].tolist(), strict=True)
        return self.links.of_routes(
            (group, [(source, targets[group], EVERY, 1.0)]) for group, source in sources
        )

    def _hops(self, own: Indices, gpus: Indices, kinds: Collection[str]) -> Loads:
        groups: dict[int, list[int]] = {}
        for group, gpu in zip(own.tolist(), gpus.tolist(), strict=True):
            groups.setdefault(group, []).append(gpu)
        return self.links.of_routes(
            (group, hops(members, self.topology, kinds)) for group, members in groups.items()
        )

    def finished(self) -> Communicators:
        """All groups, their links numbered anew without those that nobody loads."""
        parts = self.loads or [self.links.nothing]
        group, link, port, nic = (np.concatenate(column) for column in zip(*parts, strict=True))
        names, link = np.unique(link, return_inverse=True)
        return Communicators(
            scopes=self.scopes,
            group=self.group,
            scope=np.array(self.scope, dtype=np.int64),
            shape=self.shapes,
            copies=np.array(self.copies, dtype=np.int64),
            kin=np.array(self.kin, dtype=np.int64),
            links=[self.links.name(number) for number in names.tolist()],
            loads=Loads(group, link.astype(np.int64), port, nic),
        )


@cache
def _shape(ranks: int, nodes: int, per_node: int) -> GroupShape:
    return GroupShape(ranks=ranks, nodes=nodes, per_node=per_node)


_KINDS = ("port-up", "port-down", "nic-up", "nic-down", "pod-up", "pod-down", *HOST_LINKS)
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
        self.ways = ways(topology.network)
        self._cables: dict[Link, int] = {}
        self._named: list[Link] = []

    def name(self, number: int) -> Link:
        """The link of a number."""
        kind, place = divmod(number, _ROOM)
        if kind == len(_KINDS):
            return self._named[place]
        if _KINDS[kind].startswith("nic"):
            return (_KINDS[kind], *divmod(place, max(self.nics, 1)))
        if _KINDS[kind].startswith("pcie"):
            return (_KINDS[kind], *divmod(place, self.slots))
        return (_KINDS[kind], place)

    def of_members(
        self,
        own: Indices,
        gpus: Indices,
        across: Flags,
        spread: _Spread,
        sends: Flags,
        receives: Flags,
    ) -> Loads:
        """Ports carry what stays in a node; its members share what leaves it over their NICs."""
        node = gpus // self.slots
        _, inverse, counts = np.unique(
            own * (int(node.max(initial=0)) + 1) + node, return_inverse=True, return_counts=True
        )
        near = counts[inverse]
        inner, outer = near > 1, across & (self.nics > 0)
        share = 1.0 / near
        nic = node * max(self.nics, 1) + self.nic_of_slot[gpus % self.slots] if self.nics else node
        parts = []
        for way, taking_part in (("up", sends), ("down", receives)):
            some = inner & taking_part
            parts.append(self._part(f"port-{way}", own[some], gpus[some], 1.0, 0.0))
            some = outer & taking_part
            parts.append(self._part(f"nic-{way}", own[some], nic[some], 0.0, share[some]))
            if self.behind_port:
                parts.append(self._part(f"port-{way}", own[some], gpus[some], 0.0, share[some]))
            if self.topology.pods > 1:
                parts.append(self._uplinks(f"pod-{way}", own, node, spread, taking_part))
        return _summed(parts)

    def of_hosts(self, own: Indices, gpus: Indices, path: Iterable[HostLink]) -> Loads:
        """A copy loads each link of its path once."""
        links = map(self.topology.host_link_of, gpus.tolist())
        places = {"pcie": np.array([node * self.slots + j for node, j in links])}
        node = gpus // self.slots
        return _summed(
            [self._part(kind, own, places.get(kind[:4], node), 1.0, 0.0) for kind in path]
        )

    def _part(
        self, kind: str, own: Indices, place: Indices, port: float, nic: float | Floats
    ) -> Loads:
        link = _KINDS.index(kind) * _ROOM + place
        size = np.ones(len(own))
        return Loads(own, link, size * port, np.outer(size * nic, np.ones(len(self.ways))))

    def _uplinks(
        self, kind: str, own: Indices, node: Indices, spread: _Spread, taking_part: Flags
    ) -> Loads:
        """In rings, all that a node of the group sends crosses a pod's uplinks once in each
        direction; where each of its N nodes sends to all others, each of the n in the pod sends
        (N - n) / (N - 1) of it out."""
        nodes, position = np.unique(node, return_inverse=True)
        pod = np.array([self.topology.pod_of(n) for n in nodes.tolist()])[position]
        room = int(pod.max(initial=0)) + 1
        pairs, first = np.unique(own * room + pod, return_index=True)
        spans = np.bincount(pairs // room, weights=spread.pods[first])
        some = np.unique((own * room + pod)[taking_part])
        groups, places = some // room, some % room
        _, one = np.unique(own * len(nodes) + position, return_index=True)  # of each node
        count = spread.ranks[one].astype(np.float64)
        whole = np.bincount(own[one], weights=count)[groups]
        here = np.bincount((own * room + pod)[one], weights=count / spread.pods[one])[some]
        crosses = spans[groups] > 1
        out = (here * (whole - here) / np.maximum(whole - 1.0, 1.0))[crosses]
        part = self._part(kind, groups[crosses], places[crosses], 0.0, 1.0)
        part.nic[:, self.ways.index(PAIRS)] = out
        return part

    def of_routes(self, routes: Iterable[tuple[int, Iterable[Hop]]]) -> Loads:
        """What groups load whose members send to each other by these hops."""
        rows = [
            (group, self._number(link), local * share, (not local) * share, way)
            for group, own in routes
            for source, target, way, share in own
            for local in [source // self.slots == target // self.slots]
            for link in self.topology.route(source, target)
        ]
        if not rows:
            return self.nothing
        group, link, port, nic, way = (np.array(column) for column in zip(*rows, strict=True))
        taken = (way[:, None] == np.arange(len(self.ways))) | (way[:, None] == EVERY)
        return _summed([Loads(group, link, port, nic[:, None] * taken)])

    @property
    def nothing(self) -> Loads:
        """The loads of no group."""
        none = np.empty(0, dtype=np.int64)
        return Loads(none, none, np.empty(0), np.empty((0, len(self.ways))))

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
        group[starts], link[starts], np.add.reduceat(port, starts), np.add.reduceat(nic, starts, 0)
    )


def group_loads(
    gpus: Sequence[int],
    topology: Topology,
    shape: GroupShape,
    kind: str = "all_reduce",
    algorithm: str = "ring",
) -> dict[Link, tuple[float, float]]:
    """Per link of one group, bytes per byte of its wire's `port` and of its `nic`."""
    way = number_of(topology.network, kind, algorithm)
    links, members = _Links(topology), np.array(gpus, dtype=np.int64)
    own = np.zeros_like(members)
    if topology.hierarchical:
        everybody = own == 0
        across = everybody if shape.nodes > 1 else ~everybody
        loads = links.of_members(
            own, members, across, _Spread(own + 1, own + 1), everybody, everybody
        )
    else:
        loads = links.of_routes([(0, hops(gpus, topology, {kind}))])
    return {
        links.name(link): (port, nic)
        for link, port, nic in zip(
            loads.link.tolist(), loads.port.tolist(), loads.nic[:, way].tolist(), strict=True
        )
    }
