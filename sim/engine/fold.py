"""Folding: ranks that behave alike become one role, links that carry the same become one class.

Ranks, communicators and links form one graph; its coarsest equitable partition says what may be
simulated once (`symmetry`). A transfer class then loads a link class with everything that its
folded-away copies put on one such link, so contention is exact.
"""

from collections.abc import Callable, Mapping

import numpy as np

from sim.engine.communicators import (
    NOBODY,
    Communicators,
    communicators,
    scopes_beside,
    scopes_of,
)
from sim.engine.folded import FoldedProgram, RoleProgram
from sim.engine.machine import Machine
from sim.engine.replicas import Representatives, representatives
from sim.engine.symmetry import Edges, equitable_partition, renumbered
from sim.engine.timeline import Role
from sim.engine.transfers import Classes, TransferDesk
from sim.parallel.mesh import axis_of
from sim.program.program import Program


def fold(program: Program, machine: Machine, *, unfold: bool = False) -> FoldedProgram:
    """A program on a machine, folded; `unfold` keeps every rank and link apart."""
    return Folding(program, machine, unfold=unfold).folded()


class Folding:
    """Who is alike on a machine; the program can then be lowered for it more than once."""

    def __init__(self, program: Program, machine: Machine, *, unfold: bool = False) -> None:
        self.program, self.machine = program, machine
        ranks = representatives(program.mesh, machine, unfold=unfold)
        groups = communicators(scopes_of(program), ranks, machine.topology)
        classes = _classes(machine, ranks, groups, unfold)
        self.desk = TransferDesk(machine, groups, classes, scopes_beside(program))
        self.roles = _roles(program, machine, ranks, classes)

    def folded(
        self, slower: Callable[[Role], float] = lambda role: 1.0, *, together: bool = False
    ) -> FoldedProgram:
        """The folded program; kernels of a role take `slower` times as long. Roles that meet within
        a computation do so step by step, or `together` as teams."""
        from sim.engine.lockstep_groups import teams
        from sim.engine.lowering import Lowering
        from sim.engine.outline import outlines

        desk = self.desk.anew() if together else self.desk  # teams have transfers of their own
        lowered: dict[int, Lowering] = {}
        for role, index in self.roles:
            slowdown = role.slowdown * slower(role)
            lowered[role.index] = Lowering(
                desk.at(index), role.stage, slowdown, together=together, peers=lowered
            )
        for lowering in lowered.values():
            lowering.lower(outlines(self.program).of(lowering.stage, lowering.cut))
        return FoldedProgram(
            roles=tuple(RoleProgram(role, lowered[role.index].streams) for role, _ in self.roles),
            transfers=tuple(desk.transfers),
            links=tuple(desk.links),
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
    colours += [(link[0], machine.topology.capacity(link)) for link in groups.links]
    classes = equitable_partition(colours, _edges(ranks, groups))
    first, second = counts[0], counts[0] + counts[1]
    parts = classes[:first], classes[first:second], classes[second:]
    return Classes(*(renumbered(part) for part in parts))


def _edges(ranks: Representatives, groups: Communicators) -> Edges:
    """Ranks see their groups, groups their members and links, links what loads them."""
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
    """Each role with the place of the rank that represents it, lowest first rank first."""
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
    """Where a rank lies along the axes of a plan, of which those of the mesh are digits."""
    along: dict[str, tuple[int, int]] = {}  # the place so far, and of how many
    for part, size in mesh.items():
        place, sizes = along.get(axis_of(part), (0, 1))
        rank, digit = divmod(rank, size)
        along[axis_of(part)] = place + sizes * digit, sizes * size
    return tuple((axis, place) for axis, (place, sizes) in along.items() if sizes > 1)
