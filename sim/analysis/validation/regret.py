"""The cost of choosing a layout by prediction, on a table of measured runs.

A group is all measured layouts of one model, GPU count and global batch (and cluster, software,
precision). The regret of a choice is (measured time of the layout chosen / the group's best) - 1.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sim.analysis.search.evaluate import Candidate, Evaluator
from sim.analysis.search.search import BEST
from sim.analysis.validation.table import JOB, number, records, setup_of
from sim.config.errors import InputError
from sim.results.assemble import executed_flops
from sim.scenario.setup import PlanSetup
from sim.simulate import answer

SMALLEST = 6  # measured layouts of a group that counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Regret:
    """Regrets over groups (fractions): of the tool's first choice, of the layout that a constant
    utilisation would choose, and of a choice at random (its expectation)."""

    groups: int
    layouts: int
    median: float
    mean: float
    constant: float
    chance: float


@dataclass(frozen=True, slots=True)
class _MeasuredLayout:
    """A measured layout: its step time as measured, with transfers alone on their links, and at the
    peak rate (s)."""

    setup: PlanSetup
    measured: float
    uncontended: float
    at_peak: float


def regret(path: Path) -> Regret:
    """The regrets over a table's groups of at least `SMALLEST` measured layouts."""
    groups: dict[tuple[Any, ...], list[_MeasuredLayout]] = defaultdict(list)
    for record in records(path):
        if (layout := _layout(record)) is not None:
            groups[tuple(record[column] for column in JOB)].append(layout)
    large = [group for group in groups.values() if len(group) >= SMALLEST]
    if not large:
        raise InputError(str(path), f"has no {SMALLEST} layouts of one job", "name another table")
    measured = [[layout.measured for layout in group] for group in large]
    rankings = (
        [_searched(group) for group in large],
        [[layout.at_peak for layout in group] for group in large],
        [[0.0] * len(group) for group in large],
    )
    chosen, constant, chance = (list(map(of_group, measured, ranking)) for ranking in rankings)
    return Regret(
        groups=len(large),
        layouts=sum(map(len, large)),
        median=float(np.median(chosen)),
        mean=float(np.mean(chosen)),
        constant=float(np.mean(constant)),
        chance=float(np.mean(chance)),
    )


def _layout(record: Mapping[str, Any]) -> _MeasuredLayout | None:
    """None where a run was not measured or cannot be simulated."""
    try:
        measured = number(record, "step_time_s")
        if measured is None:
            return None
        setup = setup_of(record)
        candidate = Candidate.of(setup.job, setup.machine)
        uncontended = float(Evaluator().times([candidate])[0])
    except InputError:
        return None
    job, gpus = setup.job, setup.machine.topology.gpus
    peak = gpus * job.device.peak_rate(job.plan.precision)
    return _MeasuredLayout(setup, measured, uncontended, executed_flops(job) / peak)


def _searched(group: Sequence[_MeasuredLayout]) -> list[float]:
    """As `sim plan` ranks: all without contention, of which the best are played in full."""
    slowest = sorted(layout.uncontended for layout in group)[:BEST][-1]
    return [
        answer(layout.setup).step_time if layout.uncontended <= slowest else float("inf")
        for layout in group
    ]


def of_group(measured: Sequence[float], ranking: Sequence[float]) -> float:
    """The regret of the first of a ranking; of layouts ranked equal, their mean.

    >>> of_group([2.0, 1.0, 1.5], [10.0, 20.0, 30.0]), of_group([2.0, 1.0], [1.0, 1.0])
    (1.0, 0.5)
    """
    first = [time for time, rank in zip(measured, ranking, strict=True) if rank <= min(ranking)]
    return float(np.mean(first)) / min(measured) - 1.0
