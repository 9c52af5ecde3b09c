"""Long schedules from short ones: between its beginning and its end a pipeline repeats itself.

Once every stage takes equally long for two groups of microbatches in a row, all later groups take
as long (a periodic regime of a (max, +) linear system, Baccelli et al. 1992, section 3.7).
So a thousand microbatches take the time of a few dozen microbatches plus a number of periods.
"""

from collections.abc import Callable
from itertools import takewhile
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.config.dataclass import dataclass
from sim.engine.replay.grid import END, FIRST_SIDE, HOST_FREE, Indices
from sim.engine.replay.pipeline import Durations, Floats, Pipeline
from sim.program.schedule import Action, Actions, Order, Schedule

_COMPARED = 3  # periods whose moments are compared: they may only differ by a shift in time
_ENDS = 1  # periods at the end of a region that the schedule's end may change
_EQUAL = 1e-7  # share of a period: times that differ by no more count as equal
_MOST = 8  # times (stages + `least`): the most microbatches of a short schedule

Make = Callable[[int], Schedule]


class Region(NamedTuple):
    """The region in which a stage's order repeats, up to `last`. A period has `long` actions."""

    last: int
    long: int


@dataclass(frozen=True, eq=False)
class Repeating:
    """A schedule of `microbatches` that can be extended by any number of groups of `group`
    microbatches. `regions` has the repeating region of each stage's order."""

    schedule: Schedule
    microbatches: int
    group: int
    regions: tuple[Region, ...]

    def ends(
        self, pipeline: Pipeline, durations: Durations, repeats: Floats
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """The moments at the ends of stages [moments, stages, layouts] with `repeats` further
        periods [layouts], and whether each layout repeats itself. The moments of a layout that does
        not repeat itself must not be used."""
        moments = pipeline.times(durations)
        starts = np.concatenate(([0], pipeline.grid.ends[:-1] + 1))
        periods = np.stack(
            [moments[:, self._period(starts, back)] for back in range(1, 1 + _COMPARED)]
        )
        with np.errstate(invalid="ignore"):  # moments that never happen are -inf
            steps = np.nan_to_num(periods[:-1] - periods[1:])  # [periods, moments, nodes, layouts]
        period = steps[0, END].max(axis=0)
        close = _EQUAL * period
        alike = (np.abs(steps[:, END] - period) <= close).all(axis=(0, 1))
        slower = [HOST_FREE, *range(FIRST_SIDE, FIRST_SIDE + durations.sides)]
        alike &= (steps[0, slower] <= period + close).all(axis=(0, 1))
        alike &= (np.abs(np.diff(steps[:, slower], axis=0)) <= close).all(axis=(0, 1, 2))
        first = np.cumsum([0, *(region.long for region in self.regions)])[:-1]
        moments += repeats * period
        correction = (steps[0, slower][:, first] - period) * repeats  # [moments, stages, layouts]
        moments[slower, : pipeline.grid.size] += correction[:, pipeline.grid.stage]
        behind = pipeline.continued(moments, durations, self._behind(starts, pipeline.grid.ends))
        return behind[:, pipeline.grid.ends], alike

    def _period(self, starts: Indices, back: int) -> Indices:
        """The nodes of all stages in the `back`-th last period before the cut (`_behind`)."""
        return np.concatenate(
            [
                start + region.last - (back + _ENDS) * region.long + np.arange(region.long)
                for start, region in zip(starts.tolist(), self.regions, strict=True)
            ]
        )

    def _behind(self, starts: Indices, ends: Indices) -> Indices:
        """The nodes of all stages after the cut, where further periods are inserted."""
        cuts = [
            start + region.last - _ENDS * region.long
            for start, region in zip(starts.tolist(), self.regions, strict=True)
        ]
        ranges = zip(cuts, ends.tolist(), strict=True)
        return np.concatenate([np.arange(cut, end + 1) for cut, end in ranges])


def repeating(make: Make, stages: int, rest: int, group: int, *, least: int) -> Repeating | None:
    """A short schedule of `make`, in which at least `least` microbatches repeat the order.

    It stands for all numbers of microbatches whose remainder is `rest` when divided by `group`. The
    answer is None if even schedules with many more microbatches than stages do not repeat.
    """
    periods = max(_COMPARED + _ENDS, -(-least // group))
    count = rest + group * (-(-stages // group) + periods)
    while count < _MOST * (stages + least):
        short = _repeating(make(count), make(count + group), count, group, periods)
        if short is not None:
            return short
        count += group * -(-count // (2 * group))
    return None


def _repeating(
    short: Schedule, longer: Schedule, count: int, group: int, periods: int
) -> Repeating | None:
    if not _may_repeat(short.orders[0], longer.orders[0], group, periods):
        return None
    pairs = zip(short.actions, longer.actions, strict=True)
    regions = [_region(short, more, group, periods) for short, more in pairs]
    sound = [region for region in regions if region is not None]
    return Repeating(short, count, group, tuple(sound)) if len(sound) == len(regions) else None


def _may_repeat(order: Order, more: Order, group: int, periods: int) -> bool:
    """Whether enough actions at the beginnings and at the ends of two orders are equal."""
    long = len(more) - len(order)
    early = sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(order, more, strict=False))
    )
    pairs = zip(reversed(order), reversed(more), strict=False)
    late = sum(1 for _ in takewhile(lambda pair: _later(pair[0], group) == pair[1], pairs))
    return long > 0 and early + late - len(order) >= periods * long


def _later(action: Action, group: int) -> Action:
    return action._replace(microbatch=action.microbatch + group)


def _region(actions: Actions, more: Actions, group: int, periods: int) -> Region | None:
    """The region in which a stage's order repeats, or None if it does not repeat often enough."""
    count, long = len(actions.rows), len(more.rows) - len(actions.rows)
    if actions.variants != more.variants or long <= 0:
        return None
    same = (actions.rows == more.rows[:count]) & (actions.microbatches == more.microbatches[:count])
    later = (actions.rows == more.rows[long:]) & (
        actions.microbatches + group == more.microbatches[long:]
    )
    last = count if same.all() else int(same.argmin())
    first = 0 if later.all() else count - int(later[::-1].argmin())
    return Region(last, long) if last - first >= periods * long else None
