"""Meshes that share their work: their layouts bounded, and evaluated where they may be worth it."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import groupby
from math import inf
from typing import NamedTuple

from sim.analysis.search.evaluate import Candidate
from sim.analysis.search.layouts import Pruned, layouts
from sim.analysis.search.mesh_layouts import MeshLayouts
from sim.analysis.search.simplicity import score
from sim.analysis.search.space import Space
from sim.analysis.search.standings import Layout, Standings
from sim.config.dataclass import dataclass
from sim.parallel.job import Known
from sim.parallel.plan import Plan
from sim.simulate import garbage_left

_ROUND = 20  # layouts of a family that are evaluated together


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """Meshes whose blocks do the same work; `search` is another moment for every search."""

    space: Space
    sizes: tuple[Plan, ...]
    search: float
    number: int

    def meshes(self) -> list[MeshLayouts]:
        """Its meshes, with what has been worked out of them in this process."""
        families = _worked_out(self.search)
        if self.number not in families:
            known = Known()
            families[self.number] = [MeshLayouts(self.space, size, known) for size in self.sizes]
        return families[self.number]

    def forget(self) -> None:
        """Its meshes are not asked for again."""
        _worked_out(self.search).pop(self.number, None)


@lru_cache(maxsize=1)
def _worked_out(search: float) -> dict[int, list[MeshLayouts]]:
    """Facts of a search's families that this process has computed."""
    return {}


def families(space: Space, sizes: Iterable[Plan], search: float) -> list[Family]:
    """Meshes that differ in their stages alone, largest families first."""

    def ranks(plan: Plan) -> tuple[int, ...]:
        return plan.tp, plan.cp, plan.ep, plan.etp, *plan.axes.values()

    families = [tuple(own) for _, own in groupby(sorted(sizes, key=ranks), key=ranks)]
    families.sort(key=len, reverse=True)
    return [Family(space, family, search, number) for number, family in enumerate(families)]


def bounded(family: Family) -> tuple[int, float]:
    """A family's number, and the shortest bound (s) of its layouts."""
    with garbage_left():
        bounds = (mesh.passes[0][0] for mesh in family.meshes() if mesh.passes)
        return family.number, min(bounds, default=inf)


def evaluated_layouts(task: tuple[Family, Standings]) -> tuple[list[Layout], Pruned]:
    """The layouts of some meshes that may be among the best or on the Pareto front. Those with the
    shortest bounds come first, since only what is faster can make another one superfluous."""
    (family, standings), found, pruned = task, list[Layout](), Pruned()
    with garbage_left():
        rows = [(*row, mesh) for mesh in family.meshes() for row in mesh.passes]
        rows.sort(key=lambda row: row[0])
        together: list[_Contender] = []
        for number, (bound, plan, mesh) in enumerate(rows, 1):
            together += _contenders(mesh, plan, bound, standings, pruned)
            if len(together) >= _ROUND or number == len(rows):
                timed = _timed(_written(together, standings, pruned))
                standings, found, together = standings.joined(timed), found + timed, []
        pruned.divisibility += sum(mesh.unsuited for mesh in family.meshes())
        family.forget()
    return found, pruned


class _Contender(NamedTuple):
    """A layout on a mesh, and a lower bound of its step time (s)."""

    mesh: MeshLayouts
    plan: Plan
    bound: float


def _contenders(
    mesh: MeshLayouts, passes: Plan, bound: float, standings: Standings, pruned: Pruned
) -> Iterator[_Contender]:
    """The layouts of some passes that may fit and be worth an evaluation; `pruned` counts the
    others, together where that shows by their passes."""

    def worth(least: float, count: int, plan: Plan) -> bool:
        """Whether layouts that need at least so much memory, none simpler than a plan, are; if not,
        so many are counted."""
        fit = least <= mesh.capacity
        if fit and standings.admit(bound, least, score(plan)):
            return True
        pruned.memory += 0 if fit else count
        pruned.slower += count if fit else 0
        return False

    together = list(layouts(mesh.space, passes))
    if standings.too_slow(bound):
        pruned.slower += len(together)
        return
    simplest = min(together, key=score, default=passes)
    if worth(mesh.least_of_passes(passes), len(together), simplest):
        for layout in together:
            if worth(mesh.least_memory(layout), 1, layout):
                yield _Contender(mesh, layout, bound)


def _written(
    contenders: Iterable[_Contender], standings: Standings, pruned: Pruned
) -> Iterator[tuple[MeshLayouts, Candidate]]:
    """Layouts that fit and whose programs justify an evaluation."""
    for mesh, plan, bound in contenders:
        candidate = mesh.candidate(plan)
        if candidate is None:
            pruned.memory += 1
        elif standings.admit(
            max(bound, mesh.stream_bound(candidate)), candidate.memory, score(plan)
        ):
            yield mesh, candidate
        else:
            pruned.slower += 1


def _timed(contenders: Iterable[tuple[MeshLayouts, Candidate]]) -> list[Layout]:
    """Candidates as layouts; those of a mesh are evaluated together."""
    by_mesh: dict[MeshLayouts, list[Candidate]] = {}
    for mesh, candidate in contenders:
        by_mesh.setdefault(mesh, []).append(candidate)
    return [
        Layout(plan=own.job.plan, uncontended=time, memory=own.memory)
        for mesh, candidates in by_mesh.items()
        for own, time in zip(candidates, mesh.evaluator.times(candidates).tolist(), strict=True)
    ]
