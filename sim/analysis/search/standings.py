"""How the layouts of a search stand so far: what another one must promise to be evaluated."""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf

from sim.parallel.plan import Plan
from sim.results.result import Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A layout that was evaluated: its step time (s) with all transfers alone on their links, and
    the result of playing it in full, if it was. `memory` are the bytes that the fullest rank
    needs, as `Result.memory_per_gpu` has them."""

    plan: Plan
    uncontended: float
    memory: float
    result: Result | None = None

    @property
    def step_time(self) -> float:
        return self.result.step_time if self.result else self.uncontended


@dataclass(frozen=True, slots=True, kw_only=True)
class Standings:
    """The step times of the `best` layouts so far, ascending, and the Pareto front of (time,
    memory); nobody may take longer than `within` times the best."""

    best: int
    within: float
    times: tuple[float, ...] = ()
    front: tuple[tuple[float, float], ...] = ()

    def joined(self, layouts: Iterable[Layout]) -> "Standings":
        """The standings with more layouts.

        >>> plan = Plan(global_batch=1)
        >>> few = [Layout(plan=plan, uncontended=t, memory=m) for t, m in ((2, 5), (3, 6), (4, 1))]
        >>> Standings(best=2, within=1.5).joined(few)
        Standings(best=2, within=1.5, times=(2, 3), front=((2, 5), (4, 1)))
        """
        own = [(layout.uncontended, layout.memory) for layout in layouts]
        times = sorted([*self.times, *(time for time, _ in own)])[: self.best]
        front: list[tuple[float, float]] = []
        for time, memory in sorted([*self.front, *own]):
            if not front or memory < front[-1][1]:
                front.append((time, memory))
        return replace(self, times=tuple(times), front=tuple(front))

    def admit(self, bound: float, memory: float) -> bool:
        """Whether a layout that takes at least so long and so many bytes may be among the best, or
        on the Pareto front.

        >>> standings = Standings(best=1, within=3, times=(2.0,), front=((2.0, 5.0), (4.0, 1.0)))
        >>> [standings.admit(*own) for own in ((1.9, 9), (3.0, 4), (3.0, 6), (4.5, 2), (7.0, 0))]
        [True, True, False, False, False]
        """
        if not self.times:
            return True
        last = self.times[self.best - 1] if len(self.times) >= self.best else inf
        if bound > self.within * self.times[0]:
            return False
        return bound <= last or not self._beaten(bound, memory)

    def _beaten(self, bound: float, memory: float) -> bool:
        faster = bisect_right(self.front, (bound, inf))
        return faster > 0 and self.front[faster - 1][1] <= memory
