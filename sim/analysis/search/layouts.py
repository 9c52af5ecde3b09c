"""The layouts of a space, chosen in three parts: sizes of the mesh, passes, and states."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sim.analysis.search.choices.choice import Choice
from sim.analysis.search.choices.mesh import sizes
from sim.analysis.search.choices.passes import PASSES
from sim.analysis.search.choices.states import STATES
from sim.analysis.search.space import Space
from sim.parallel.plan import Plan


@dataclass(slots=True)
class Pruned:
    """How many layouts were never evaluated, by reason. Their sizes do not divide the job, they
    need too much memory, or a lower bound of their step time is too long."""

    divisibility: int = 0
    memory: int = 0
    slower: int = 0

    def add(self, other: "Pruned") -> None:
        """Add the counts of another part of the space."""
        self.divisibility += other.divisibility
        self.memory += other.memory
        self.slower += other.slower


def meshes(space: Space, pruned: Pruned) -> list[Plan]:
    """Return plans in which only the sizes of the mesh are chosen. `pruned` counts the meshes that
    cannot divide the batch."""
    start = Plan(global_batch=space.global_batch, precision=space.precision)
    chosen = list(_chosen(space, start, sizes()))
    divided = [plan for plan in chosen if space.global_batch % plan.data_parallel == 0]
    pruned.divisibility += len(chosen) - len(divided)
    return divided


def passes(space: Space, mesh: Plan) -> Iterator[Plan]:
    """Yield the plans on a mesh with all choices of passes made."""
    return _chosen(space, mesh, PASSES)


def layouts(space: Space, plan: Plan) -> Iterator[Plan]:
    """Yield the layouts that run the passes of a plan."""
    return _chosen(space, plan, STATES)


def _chosen(space: Space, plan: Plan, choices: Sequence[Choice]) -> Iterator[Plan]:
    if not choices:
        yield plan
        return
    for further in choices[0].plans(space, plan):
        yield from _chosen(space, further, choices[1:])
