"""Folding: ranks that behave alike become one role, links that carry the same become one class.

Ranks, communicators and links form one graph; its coarsest equitable partition says what may be
simulated once (`symmetry`). A transfer class then loads a link class with everything that its
folded-away copies put on one such link, so contention is exact.
"""

from collections.abc import Mapping, Sequence

from sim.engine.communicators import Communicator, communicators, scopes_of
from sim.engine.folded import FoldedProgram, RoleProgram
from sim.engine.lowering import lower
from sim.engine.machine import Machine
from sim.engine.replicas import Place, places
from sim.engine.symmetry import Neighbour, equitable_partition
from sim.engine.timeline import Role
from sim.engine.transfers import Classes, TransferDesk, copies_on
from sim.program.program import Program


def fold(program: Program, machine: Machine, *, unfold: bool = False) -> FoldedProgram:
    """A program on a machine, folded; `unfold` keeps every rank and link apart."""
    return Folding(program, machine, unfold=unfold).folded()


class Folding:
    """Who is alike on a machine; the program can then be lowered for it more than once."""

    def __init__(self, program: Program, machine: Machine, *, unfold: bool = False) -> None:
        self.program, self.machine = program, machine
        found = places(program.mesh, machine, unfold=unfold)
        groups = communicators(scopes_of(program), found, machine.topology)
        classes = _classes(machine, found, groups, unfold)
        self.desk = TransferDesk(machine, groups, classes)
        self.roles = _roles(machine, found, classes)

    def folded(self, slower: Mapping[int, float] | None = None) -> FoldedProgram:
        """The folded program; kernels of the stages in `slower` take so many times as long."""
        roles = []
        for role, index in self.roles:
            slowdown = role.slowdown * (slower or {}).get(role.stage, 1.0)
            lowered = lower(self.program, role.stage, self.desk.at(index), slowdown)
            roles.append(RoleProgram(role, lowered))
        return FoldedProgram(
            roles=tuple(roles),
            transfers=tuple(self.desk.transfers),
            links=tuple(self.desk.links),
        )


def _classes(
    machine: Machine,
    found: Sequence[Place],
    groups: Sequence[Communicator],
    unfold: bool,
) -> Classes:
    links = {link: i for i, link in enumerate(dict.fromkeys(k for g in groups for k in g.loads))}
    if unfold:
        return Classes(range(len(found)), range(len(groups)), links)
    first_group, first_link = len(found), len(found) + len(groups)
    colours: list[object] = [
        ("rank", place.coordinates.get("pp", 0), machine.slowdown.get(place.rank, 1.0))
        for place in found
    ]
    colours += [("group", group.scope, group.shape) for group in groups]
    colours += [(link[0], machine.topology.capacity(link)) for link in links]
    edges: list[list[Neighbour]] = [[] for _ in colours]
    for g, group in enumerate(groups, first_group):
        for index, position in group.members:
            edges[g].append(Neighbour(index, position, found[index].count // group.count))
            edges[index].append(Neighbour(g, position))
        for link, load in group.loads.items():
            vertex = first_link + links[link]
            edges[g].append(Neighbour(vertex, load))
            edges[vertex].append(Neighbour(g, load, copies_on(link, group)))
    classes = equitable_partition(colours, edges)
    return Classes(
        classes[:first_group],
        classes[first_group:first_link],
        {link: classes[first_link + i] for link, i in links.items()},
    )


def _roles(machine: Machine, found: Sequence[Place], classes: Classes) -> list[tuple[Role, int]]:
    """Each role with the index of the place that represents it, lowest first rank first."""
    members: dict[int, list[int]] = {}
    for index, number in enumerate(classes.places):
        members.setdefault(number, []).append(index)
    stages = [found[indices[0]].coordinates.get("pp", 0) for indices in members.values()]
    roles = []
    for number, indices in enumerate(members.values()):
        place, stage = found[indices[0]], stages[number]
        name = f"stage {stage}" + (f", rank {place.rank}" if stages.count(stage) > 1 else "")
        role = Role(
            index=number,
            name=name,
            stage=stage,
            ranks=sum(found[i].count for i in indices),
            first_rank=place.rank,
            slowdown=machine.slowdown.get(place.rank, 1.0),
        )
        roles.append((role, indices[0]))
    return roles
