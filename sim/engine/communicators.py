"""Which ranks talk to each other: a program's communicators, their places and their loads.

Groups are found by arithmetic on the coordinates of representative ranks, so the effort does not
grow with the number of replicas. `sim.engine.group_links` knows the links.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.collectives.schedule import GroupShape
from sim.config.dataclass import dataclass
from sim.engine.group_links import GroupLinks, Loads, Spread
from sim.engine.replicas import Representatives
from sim.hardware.cluster.topology import Link, Topology
from sim.parallel.mesh import Mesh
from sim.program.operations import Call, Collective, Copy, HostLink, Send
from sim.program.program import Program

if TYPE_CHECKING:
    from sim.engine.cabled_links import CabledLinks

Indices = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
NOBODY = -1  # the group of a rank that takes part in none


@dataclass(frozen=True, slots=True)
class Scope:
    """A call names a scope instead of ranks: mesh axes (among some `stages`), a `pair` of stages,
    or a `path` of links to the rank's host with their `loads`. Only the `first` ranks along some
    axes take part in a path."""

    axes: tuple[str, ...] = ()
    stages: tuple[int, ...] | None = None
    pair: tuple[int, int] | None = None
    path: tuple[HostLink, ...] = ()
    loads: tuple[float, ...] = ()
    first: tuple[str, ...] = ()


def scope_of(call: Call, stage: int) -> Scope:
    """The scope of a call that ranks of `stage` make."""
    if isinstance(call, Copy):
        return _over(call.path, call.loads, call.first)
    if isinstance(call, Collective):
        return _among(call.axes, call.stages)
    return _between(stage, call.to) if isinstance(call, Send) else _between(call.source, stage)


@cache
def _among(axes: tuple[str, ...], stages: tuple[int, ...] | None) -> Scope:
    return Scope(axes=axes, stages=stages)


@cache
def _over(path: tuple[HostLink, ...], loads: tuple[float, ...], first: tuple[str, ...]) -> Scope:
    return Scope(path=path, loads=loads or (1.0,) * len(path), first=first)


@cache
def _between(source: int, target: int) -> Scope:
    return Scope(pair=(source, target))


def scopes_of(program: Program) -> dict[Scope, set[str]]:
    """All scopes that a program uses, in order of first use, and their collectives' kinds."""
    scopes: dict[Scope, set[str]] = {}
    for stage_program in dict.fromkeys(program.stages):
        stage = program.stages.index(stage_program)
        for call in stage_program.calls:
            kinds = scopes.setdefault(scope_of(call, stage), set())
            if isinstance(call, Collective):
                kinds.add(call.kind)
    for source, target in program.neighbours():
        scopes.setdefault(_between(source, target), set())
    for scope in scopes:
        if unknown := set(scope.axes) - set(program.mesh):
            raise ValueError(f"a collective over {min(unknown)!r}, which is no axis of the mesh")
    return scopes


def scopes_beside(program: Program) -> frozenset[Scope]:
    """The scopes whose transfers run beside computations, on streams of their own."""
    return frozenset(
        scope_of(call, program.stages.index(stage))
        for stage in dict.fromkeys(program.stages)
        for call in stage.calls_beside
    )


@dataclass(frozen=True, eq=False)
class Communicators:
    """All groups of ranks that talk to each other, numbered.

    `group` numbers the group of each rank in each scope [scopes, ranks], or is `NOBODY`. For each
    group, `scope` is its scope, `shape` its layout on nodes, `copies` the number of equal groups
    for which it stands. Groups of the same `kin` share a scope and a stage, so they call at once.
    `links` are the loaded links; `common` marks the links that nodes share.
    """

    scopes: Sequence[Scope]
    group: Indices
    scope: Indices
    shape: Sequence[GroupShape]
    copies: Indices
    kin: Indices
    links: Sequence[Link]
    common: Flags
    loads: Loads

    @cached_property
    def times(self) -> Indices:
        """How many times each row of the loads counts on its link. All copies of a communicator
        meet on links that nodes share."""
        meeting = self.common[self.loads.link]
        return np.where(meeting, self.copies[self.loads.group], 1)

    @cached_property
    def at_once(self) -> tuple[Floats, Floats]:
        """For each row of the loads, the sums of `port` and of `nic` over all groups of the same
        kin on the row's link."""
        loads = self.loads
        key = self.kin[loads.group] * len(self.links) + loads.link
        names, numbers = np.unique(key, return_inverse=True)
        port, nic = np.zeros(len(names)), np.zeros((len(names), loads.nic.shape[1]))
        np.add.at(port, numbers, loads.port * self.times)
        np.add.at(nic, numbers, loads.nic * self.times[:, None])
        return port[numbers], nic[numbers]

    @cached_property
    def _number(self) -> Mapping[Scope, int]:
        return {scope: number for number, scope in enumerate(self.scopes)}

    def at(self, rank: int, scope: Scope) -> int:
        """The group of a scope to which a rank (by its place) belongs, or `NOBODY`."""
        number = self._number.get(scope)
        return NOBODY if number is None else int(self.group[number, rank])


class _Members(NamedTuple):
    """Memberships as arrays of equal length: a rank (by its place) is in a group of a scope."""

    scope: Indices
    group: Indices
    rank: Indices


def communicators(
    kinds: Mapping[Scope, Collection[str]], ranks: Representatives, topology: Topology
) -> Communicators:
    """All groups of two or more among some ranks, and ranks that copy to hosts as groups of one."""
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
        copies = any(link.startswith("pcie") for scope in scopes for link in scope.path)
        self.cabled = None if topology.hierarchical else _cabled(topology, copies=copies)
        self.links = self.cabled or GroupLinks(topology, copies=copies)
        self.group = np.full((len(scopes), len(ranks.rank)), NOBODY, dtype=np.int64)
        self.scope: list[int] = []
        self.shapes: list[GroupShape] = []
        self.copies: list[int] = []
        self.kin: list[int] = []
        self.loads: list[Loads] = []

    def add(self, numbers: Sequence[int]) -> None:
        """Add the groups of a single scope, or of several pairs of stages."""
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
        single = inside or self.ranks.axis in self.scopes[numbers[0]].first
        copies = np.ones_like(representative) if single else self.ranks.count[representative]
        self.copies += copies.tolist()
        stages = int(self.stage.max(initial=0)) + 1
        self.kin += (scope * stages + self.stage[representative]).tolist()
        self.loads.append(self._loaded(members, first))

    def _members(self, numbers: Sequence[int]) -> _Members:
        """The members of the groups of these scopes, whose groups extend along the same axes."""
        scope = self.scopes[numbers[0]]
        inside = ("pp",) if scope.pair is not None else scope.axes
        key = np.zeros_like(self.stage)
        for axis, at in self.ranks.coordinates.items():
            if axis not in inside:
                key = key * (int(at.max(initial=0)) + 1) + at
        names, group = np.unique(key, return_inverse=True)
        parts = [
            (np.full(len(ranks), number), place * len(names) + group[ranks], ranks)
            for place, number in enumerate(numbers)
            for ranks in [self._taking_part(self.scopes[number])]
        ]
        return _Members(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def _taking_part(self, scope: Scope) -> Indices:
        """The ranks of a scope's stages, or the `first` ranks along the axes of a copy."""
        stages = scope.pair or scope.stages
        if scope.first:
            return np.flatnonzero(~np.any([self.ranks.at(axis) for axis in scope.first], axis=0))
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
        first = np.full(count, self.ranks.rank.max(initial=0))
        np.minimum.at(first, members.group, self.ranks.rank[members.rank])
        scope = np.zeros(count, dtype=np.int64)
        scope[members.group] = members.scope
        reach = {number: self._reach(number) for number in dict.fromkeys(scope.tolist())}
        for rank, span, each, start, of in zip(
            ranks.tolist(), spans.tolist(), most.tolist(), first.tolist(), scope.tolist(),
            strict=True,
        ):  # fmt: skip
            last = start % self.topology.gpus_per_node + reach[of]
            extent = last // self.topology.gpus_per_node
            self.shapes.append(_shape(int(rank), int(span), each, self._beyond(span, extent)))

    def _reach(self, number: int) -> int:
        """The distance, in ranks, between the first and the last member of a scope's groups."""
        scope, mesh = self.scopes[number], Mesh(axes=self.ranks.mesh)
        stages = scope.pair or scope.stages or ()
        reach = (max(stages) - min(stages)) * mesh.stride("pp") if stages else 0
        return reach + sum(
            (size - 1) * mesh.stride(axis)
            for axis, size in self.ranks.mesh.items()
            if axis in scope.axes
        )

    def _beyond(self, nodes: int, extent: int) -> float:
        network, whole = self.topology.network, self.topology.whole
        return network.beyond(int(nodes), extent, whole) if network else 0.0

    def _loaded(self, members: _Members, first: int) -> Loads:
        gpus, groups = self.ranks.rank[members.rank], first + members.group
        scope = self.scopes[int(members.scope[0])]
        if scope.path:
            pods = self.ranks.pods[members.rank]
            from sim.engine.host_loads import of_hosts

            return of_hosts(self.links, groups, gpus, scope.path, scope.loads, pods)
        pairs = np.array([scope.pair or (NOBODY, NOBODY) for scope in self.scopes])
        messages = pairs[members.scope[0], 0] != NOBODY
        stage = self.stage[members.rank]
        everybody = np.ones(len(groups), dtype=bool)
        sends = stage == pairs[members.scope, 0] if messages else everybody
        receives = stage == pairs[members.scope, 1] if messages else everybody
        if self.cabled is not None:
            if messages:
                return self.cabled.of_messages(groups, gpus, sends)
            kinds = self.kinds[self.scopes[int(members.scope[0])]]
            return self.cabled.of_collectives(groups, gpus, kinds)
        inside = self.ranks.axis in self.scopes[int(members.scope[0])].axes
        once = np.ones_like(groups)
        pods = self.ranks.pods[members.rank] if inside else once
        count = self.ranks.count[members.rank] if inside else once
        across = np.array([shape.nodes > 1 for shape in self.shapes[first:]])[members.group]
        return self.links.of_members(groups, gpus, across, Spread(count, pods), sends, receives)

    def finished(self) -> Communicators:
        """All groups; their links are numbered anew without links that no group loads."""
        parts = self.loads or [self.links.nothing]
        group, link, port, nic = (np.concatenate(column) for column in zip(*parts, strict=True))
        names, link = np.unique(link, return_inverse=True)
        named = [self.links.name(number) for number in names.tolist()]
        return Communicators(
            scopes=self.scopes,
            group=self.group,
            scope=np.array(self.scope, dtype=np.int64),
            shape=self.shapes,
            copies=np.array(self.copies, dtype=np.int64),
            kin=np.array(self.kin, dtype=np.int64),
            links=named,
            common=np.array([self.links.common(link[0]) for link in named], dtype=bool),
            loads=Loads(group, link.astype(np.int64), port, nic),
        )


def _cabled(topology: Topology, *, copies: bool) -> "CabledLinks":
    from sim.engine.cabled_links import CabledLinks  # most clusters are switched

    return CabledLinks(topology, copies=copies)


@cache
def _shape(ranks: int, nodes: int, per_node: int, beyond: float) -> GroupShape:
    return GroupShape(ranks=ranks, nodes=nodes, per_node=per_node, beyond=beyond)
