"""The tasks of a search: compute bounds for the layouts of meshes; evaluate promising layouts."""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import dropwhile, groupby
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

_ROUND = 20  # layouts of a mesh are evaluated as soon as so many have been collected

Bounded = tuple[float, Plan]  # a lower bound of the step time (s); a plan that fixes the passes


@dataclass(frozen=True, slots=True, eq=False)
class Mesh:
    """The sizes of a mesh, and its number. Blocks do the same work on all meshes of a `family`.
    `search` is the time at which the search began; it identifies the search."""

    space: Space
    sizes: Plan
    family: tuple[int, ...]
    search: float
    number: int

    def layouts(self) -> MeshLayouts:
        """Return the mesh's layouts, with this process's results for the mesh and its family."""
        families, meshes = _worked_out(self.search)
        if self.number not in meshes:
            known = families.setdefault(self.family, Known())
            meshes[self.number] = MeshLayouts(self.space, self.sizes, known)
        return meshes[self.number]

    def forget(self) -> None:
        """Drop the mesh's layouts, which are not needed again."""
        _worked_out(self.search)[1].pop(self.number, None)


@lru_cache(maxsize=1)
def _worked_out(search: float) -> tuple[dict[tuple[int, ...], Known], dict[int, MeshLayouts]]:
    """Return this process's results of a search: facts by family, and layouts by mesh."""
    return {}, {}


def families(space: Space, sizes: Iterable[Plan], search: float) -> list[list[Mesh]]:
    """Return groups of meshes that differ only in the number of stages, largest groups first."""

    def family(plan: Plan) -> tuple[int, ...]:
        return plan.tp, plan.cp, plan.ep, plan.etp, *plan.axes.values()

    meshes = [
        Mesh(space, plan, family(plan), search, number)
        for number, plan in enumerate(sorted(sizes, key=family))
    ]
    found = [list(group) for _, group in groupby(meshes, key=lambda mesh: mesh.family)]
    return sorted(found, key=len, reverse=True)


def bounded(family: Sequence[Mesh]) -> list[tuple[Mesh, list[Bounded], Pruned]]:
    """Return each mesh with its passes, by rising bound, and the numbers of layouts left out.
    Each list of passes begins with the first passes that may fit in memory."""
    with garbage_left():
        return [_bounded(mesh, mesh.layouts()) for mesh in family]


def _bounded(mesh: Mesh, mesh_layouts: MeshLayouts) -> tuple[Mesh, list[Bounded], Pruned]:
    rows = mesh_layouts.passes if any(map(mesh_layouts.may_fit, mesh_layouts.suited)) else []
    rows = list(dropwhile(lambda row: not mesh_layouts.may_fit(row[1]), rows))
    kept = {id(plan) for _, plan in rows}
    without = (layouts(mesh.space, plan) for plan in mesh_layouts.suited if id(plan) not in kept)
    too_large = sum(len(list(each)) for each in without)
    return mesh, rows, Pruned(divisibility=len(mesh_layouts.refusals), memory=too_large)


def evaluated_layouts(
    task: tuple[Mesh, Sequence[Bounded], Standings],
) -> tuple[list[Layout], Pruned]:
    """Return the layouts of a mesh's passes that may be among the best or on the Pareto front. The
    shortest bounds come first, since only a faster layout makes another layout superfluous."""
    (mesh, rows, standings), found, pruned = task, list[Layout](), Pruned()
    with garbage_left():
        mesh_layouts, together = mesh.layouts(), list[_Contender]()
        for number, (bound, plan) in enumerate(rows, 1):
            together += _contenders(mesh_layouts, plan, bound, standings, pruned)
            if len(together) >= _ROUND or number == len(rows):
                timed = _timed(mesh_layouts, _written(mesh_layouts, together, standings, pruned))
                standings, found, together = standings.joined(timed), found + timed, []
        mesh.forget()
    return found, pruned


class _Contender(NamedTuple):
    """A layout, and a lower bound of its step time (s)."""

    plan: Plan
    bound: float


def _contenders(
    mesh: MeshLayouts, passes: Plan, bound: float, standings: Standings, pruned: Pruned
) -> Iterator[_Contender]:
    """Yield layouts with these passes that may fit in memory and may be worth an evaluation.
    `pruned` counts the other layouts, all at once if the bound of the passes excludes them."""

    def worth(least: float, count: int, plan: Plan) -> bool:
        """Return whether layouts that need at least `least` bytes, and are no simpler than `plan`,
        may be worth an evaluation; otherwise count them as pruned."""
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
                yield _Contender(layout, bound)


def _written(
    mesh: MeshLayouts, contenders: Iterable[_Contender], standings: Standings, pruned: Pruned
) -> Iterator[Candidate]:
    """Yield the layouts that fit in memory and whose programs may be worth an evaluation."""
    for plan, bound in contenders:
        candidate = mesh.candidate(plan)
        if candidate is None:
            pruned.memory += 1
        elif standings.admit(
            max(bound, mesh.stream_bound(candidate)), candidate.memory, score(plan)
        ):
            yield candidate
        else:
            pruned.slower += 1


def _timed(mesh: MeshLayouts, contenders: Iterable[Candidate]) -> list[Layout]:
    """Evaluate candidates together, and return them as layouts."""
    candidates = list(contenders)
    times = mesh.evaluator.times(candidates).tolist()
    return [
        Layout(plan=candidate.job.plan, uncontended=time, memory=candidate.memory)
        for candidate, time in zip(candidates, times, strict=True)
    ]
