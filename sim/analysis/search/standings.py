"""The best layouts of a search so far, which say whether another layout is worth an evaluation."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf
from operator import itemgetter
from typing import Any

from sim.analysis.search.simplicity import score
from sim.config.dataclass import dataclass
from sim.parallel.plan import Plan
from sim.results.result import Result

Score = tuple[int, int]

_ALIKE = 1.11  # below this ratio, two step times can rarely be told apart (`told_apart`)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A layout that was evaluated: its step time (s) with every transfer alone on its links, and
    the `result` if it was played in full. `memory` is the bytes that the fullest rank needs, as in
    `Result.memory_per_gpu`."""

    plan: Plan
    uncontended: float
    memory: float
    result: Result | None = None

    @property
    def step_time(self) -> float:
        return self.result.step_time if self.result else self.uncontended


@dataclass(frozen=True, slots=True, kw_only=True)
class Standings:
    """The step times of the `best` layouts so far, ascending, and the Pareto fronts of (time,
    memory) and of (time, complications, ZeRO stage). A layout may take at most `within` times as
    long as the best; it counts as simple only if it takes at most `_ALIKE` times as long."""

    best: int
    within: float
    times: tuple[float, ...] = ()
    front: tuple[tuple[float, float], ...] = ()
    simple: tuple[tuple[float, Score], ...] = ()

    def joined(self, layouts: Iterable[Layout]) -> "Standings":
        """Return the standings with more layouts.

        >>> plan = Plan(global_batch=1)
        >>> few = [Layout(plan=plan, uncontended=t, memory=m) for t, m in ((2, 5), (3, 6), (4, 1))]
        >>> Standings(best=2, within=1.5).joined(few)
        Standings(best=2, within=1.5, times=(2, 3), front=((2, 5), (4, 1)), simple=((2, (0, 0)),))
        """
        layouts = list(layouts)
        points = [(layout.uncontended, layout.memory) for layout in layouts]
        scored = [(layout.uncontended, score(layout.plan)) for layout in layouts]
        times = sorted([*self.times, *(time for time, _ in points)])[: self.best]
        front, simple = _front([*self.front, *points]), _front([*self.simple, *scored])
        return replace(self, times=tuple(times), front=front, simple=simple)

    def too_slow(self, bound: float) -> bool:
        """Return whether a step of at least `bound` seconds is too slow, whatever its memory."""
        return bool(self.times) and bound > self.within * self.times[0]

    def admit(self, bound: float, memory: float, scored: Score | None = None) -> bool:
        """Return whether a layout may be among the best, on the Pareto front, or the simplest of
        the nearly fastest layouts. The layout takes at least `bound` seconds and `memory` bytes.

        >>> standings = Standings(best=1, within=3, times=(2.0,), front=((2.0, 5.0), (4.0, 1.0)))
        >>> [standings.admit(*own) for own in ((1.9, 9), (3.0, 4), (3.0, 6), (4.5, 2), (7.0, 0))]
        [True, True, False, False, False]
        """
        if not self.times:
            return True
        last = self.times[self.best - 1] if len(self.times) >= self.best else inf
        if self.too_slow(bound):
            return False
        if bound <= last or not _beaten(self.front, bound, memory):
            return True
        alike = scored is not None and bound <= _ALIKE * self.times[0]
        return alike and not _beaten(self.simple, bound, scored)


def _front(points: Iterable[tuple[float, Any]]) -> tuple[tuple[float, Any], ...]:
    """Return the points of (time, other) that no other point beats in both."""
    front: list[tuple[float, Any]] = []
    for time, other in sorted(points):
        if not front or other < front[-1][1]:
            front.append((time, other))
    return tuple(front)


def _beaten(front: Sequence[tuple[float, Any]], bound: float, other: Any) -> bool:
    faster = bisect_right(front, bound, key=itemgetter(0))
    return faster > 0 and bool(front[faster - 1][1] <= other)
