"""Folding: ranks that behave alike become one role, links with equal traffic become one class.

Ranks, communicators and links are the vertices of one graph. One member of each class of the
graph's coarsest equitable partition is simulated (`equitable_partition`). A class of transfers
loads a link with the bytes of all its copies on the link, so contention is exact.

Two vertices share a class only if they have the same colour and the same number of neighbours in
every class (colour refinement, Weisfeiler and Leman 1968; Berkholz, Bonsma and Grohe 2017 for its
complexity). Simulating one member of each class is then exact. Vertices are compared by a 64-bit
hash of their edges' labels and their neighbours' classes. So a round of refinement takes a few
array operations.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import count as count_up

import numpy as np
from numpy.typing import NDArray

from sim.config.dataclass import dataclass
from sim.engine.communicators import NOBODY, Communicators, communicators, scopes_beside, scopes_of
from sim.engine.folded import FoldedProgram, RoleProgram
from sim.engine.machine import Machine
from sim.engine.replicas import Representatives, representatives
from sim.engine.timeline import Role
from sim.engine.transfers import Classes, TransferDesk
from sim.parallel.mesh import axis_of
from sim.program.program import Program

Indices = NDArray[np.int64]
Words = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Edges:
    """Directed edges: vertex `source` has `copies` neighbours like `target`, by edges of a `label`.

    All four arrays have the same length; labels are numbers.
    """

    source: Indices
    target: Indices
    label: Indices
    copies: Indices

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, int, int]]) -> "Edges":
        """Edges from rows (source, target, label, copies)."""
        table = np.array(rows, dtype=np.int64).reshape(len(rows), 4)
        return cls(*table.T)


def equitable_partition(
    colours: Sequence[Hashable], edges: Edges, *, most: int | None = None
) -> Indices:
    """The class of each vertex in the coarsest equitable partition, numbered by first appearance.

    If `most` rounds do not find the partition, each vertex is its own class. A path takes as many
    rounds as it has vertices.

    >>> line = Edges.of([(0, 1, 0, 1), (1, 0, 0, 1), (1, 2, 0, 1), (2, 1, 0, 1)])
    >>> equitable_partition(["a", "a", "a"], line).tolist()
    [0, 1, 0]
    """
    numbers: dict[Hashable, int] = {}
    classes = np.array(
        [numbers.setdefault(colour, len(numbers)) for colour in colours], dtype=np.int64
    )
    count, labels = len(numbers), edges.label.astype(np.uint64)
    copies = edges.copies.astype(np.uint64)
    for _ in range(most) if most else count_up():
        seen = _mixed(classes.astype(np.uint64))[edges.target] + labels
        views = np.zeros(len(classes), dtype=np.uint64)
        np.add.at(views, edges.source, _mixed(seen) * copies)
        classes = renumbered(_mixed(views) + classes.astype(np.uint64) * np.uint64(_ODD))
        more = int(classes.max(initial=-1)) + 1
        if more == count:
            return classes
        count = more
    return np.arange(len(classes))


_ODD = 0x9E3779B97F4A7C15


def _mixed(words: Words) -> Words:
    """A hash of each word: each bit depends on the whole word (Steele et al. 2014, SplitMix)."""
    words = words + np.uint64(_ODD)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Words = words ^ (words >> np.uint64(31))
    return mixed


def renumbered(names: Words | Indices) -> Indices:
    """A number for each name, by first appearance; equal names share a number.

    >>> renumbered(np.array([7, 3, 7])).tolist()
    [0, 1, 0]
    """
    _, first, inverse = np.unique(names, return_index=True, return_inverse=True)
    place = np.empty(len(first), dtype=np.int64)
    place[np.argsort(first)] = np.arange(len(first))
    numbered: Indices = place[inverse]
    return numbered


def fold(program: Program, machine: Machine, *, unfold: bool = False) -> FoldedProgram:
    """Fold a program on a machine; `unfold` keeps every rank and link apart."""
    return Folding(program, machine, unfold=unfold).folded()


class Folding:
    """The classes of equal ranks, groups and links of a program. They are found once; `folded` then
    writes the folded program for any speeds of the roles."""

    def __init__(self, program: Program, machine: Machine, *, unfold: bool = False) -> None:
        self.program, self.machine = program, machine
        scopes = scopes_of(program)
        stores = any(link.startswith("storage") for scope in scopes for link in scope.path)
        ranks = representatives(program.mesh, machine, unfold=unfold, stores=stores)
        groups = communicators(scopes, ranks, machine.topology)
        classes = _classes(machine, ranks, groups, unfold)
        self.desk = TransferDesk(machine, groups, classes, scopes_beside(program))
        self.roles = _roles(program, machine, ranks, classes)

    def folded(
        self, slower: Callable[[Role], float] = lambda role: 1.0, *, together: bool = False
    ) -> FoldedProgram:
        """The folded program; kernels of a role take `slower(role)` times as long. Roles that meet
        within a computation are played step by step, or with `together` as teams."""
        from sim.engine.clock_transfers import ClockDesk
        from sim.engine.lockstep_groups import teams
        from sim.engine.lowering import Known, Lowering
        from sim.engine.outline import outlines

        outline, known = outlines(self.program), Known()
        desk = ClockDesk(self.desk)
        lowered: dict[int, Lowering] = {}
        for role, index in self.roles:
            slowdown = role.slowdown * slower(role)
            lowered[role.index] = Lowering(
                desk.at(index), role.stage, slowdown, together=together, peers=lowered,
                known=known,
            )  # fmt: skip
        for lowering in lowered.values():
            lowering.lower(outline.of(lowering.stage, lowering.cut))
        return FoldedProgram(
            roles=tuple(RoleProgram(role, lowered[role.index].streams) for role, _ in self.roles),
            transfers=tuple(desk.transfers),
            links=tuple(self.desk.links),
            teams=teams(lowered),
        )


def _classes(
    machine: Machine, ranks: Representatives, groups: Communicators, unfold: bool
) -> Classes:
    """Which ranks, communicators and links are alike."""
    counts = len(ranks.rank), len(groups.shape), len(groups.links)
    if unfold:
        return Classes(*(np.arange(count) for count in counts))
    slow = machine.slowdown
    colours: list[object] = [
        ("rank", stage, slow.get(rank, 1.0))
        for stage, rank in zip(ranks.at("pp").tolist(), ranks.rank.tolist(), strict=True)
    ]
    colours += [
        ("group", scope, shape)
        for scope, shape in zip(groups.scope.tolist(), groups.shape, strict=True)
    ]
    colours += [
        (link[0], machine.topology.capacity(link), machine.shared.get(link))
        for link in groups.links
    ]
    classes = equitable_partition(colours, _edges(ranks, groups))
    first, second = counts[0], counts[0] + counts[1]
    parts = classes[:first], classes[first:second], classes[second:]
    return Classes(*(renumbered(part) for part in parts))


def _edges(ranks: Representatives, groups: Communicators) -> Edges:
    """Edges between ranks and their groups, and between groups and the links that they load."""
    first_group, first_link = len(ranks.rank), len(ranks.rank) + len(groups.shape)
    scope, rank = np.nonzero(groups.group != NOBODY)
    group = groups.group[scope, rank]
    sources = np.array([pair.pair[0] if pair.pair else -1 for pair in groups.scopes])
    position = (ranks.at("pp")[rank] == sources[scope]).astype(np.int64)
    folded = ranks.count[rank] // groups.copies[group]
    loads = groups.loads
    _, label = np.unique(np.vstack((loads.port, loads.nic.T)), axis=1, return_inverse=True)
    label = 2 + label.reshape(-1)
    ones = np.ones_like
    return Edges(
        np.concatenate(
            (group + first_group, rank, loads.group + first_group, loads.link + first_link)
        ),
        np.concatenate(
            (rank, group + first_group, loads.link + first_link, loads.group + first_group)
        ),
        np.concatenate((position, position, label, label)),
        np.concatenate((folded, ones(rank), ones(label), groups.times)),
    )


def _roles(
    program: Program, machine: Machine, ranks: Representatives, classes: Classes
) -> list[tuple[Role, int]]:
    """Each role with the place of its representative rank, ordered by first rank."""
    members: dict[int, list[int]] = {}
    for place, number in enumerate(classes.ranks.tolist()):
        members.setdefault(number, []).append(place)
    stage_of = ranks.at("pp").tolist()
    stages = [stage_of[places[0]] for places in members.values()]
    roles = []
    for number, places in enumerate(members.values()):
        rank, stage = int(ranks.rank[places[0]]), stages[number]
        name = f"stage {stage}" + (f", rank {rank}" if stages.count(stage) > 1 else "")
        role = Role(
            index=number,
            name=name,
            stage=stage,
            ranks=int(ranks.count[places].sum()),
            first_rank=rank,
            slowdown=machine.slowdown.get(rank, 1.0),
            pieces=program.stages[stage].pieces or program.schedule.pieces[stage],
            coordinates=_coordinates(program.mesh, rank),
        )
        roles.append((role, places[0]))
    return roles


def _coordinates(mesh: Mapping[str, int], rank: int) -> tuple[tuple[str, int], ...]:
    """A rank's coordinates along the plan's axes. Several axes of the mesh may be digits of one
    axis of the plan."""
    along: dict[str, tuple[int, int]] = {}  # place and size, of the digits so far
    for part, size in mesh.items():
        place, sizes = along.get(axis_of(part), (0, 1))
        rank, digit = divmod(rank, size)
        along[axis_of(part)] = place + sizes * digit, sizes * size
    return tuple((axis, place) for axis, (place, sizes) in along.items() if sizes > 1)
