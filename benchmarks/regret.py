"""Regret: what the choice of a layout by prediction costs, on a CSV of measured runs.

A group holds all measured layouts of one model, GPU count and global batch (and cluster, software,
precision). The regret of a choice is (measured time of the chosen layout / the group's best time)
- 1.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sim.analysis.search.evaluate import Candidate, Evaluator
from sim.analysis.search.search import BEST
from sim.analysis.validation.errors import of_group
from sim.analysis.validation.table import JOB, number, records, setup_of
from sim.config.errors import InputError
from sim.results.assemble import executed_flops
from sim.scenario.setup import PlanSetup
from sim.simulate import answer

SMALLEST = 6  # fewest measured layouts of a group that counts


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
    """A measured layout with its step times (s): as measured, as predicted with every transfer
    alone on its links, and of its products at the device's peak rate."""

    setup: PlanSetup
    measured: float
    uncontended: float
    at_peak: float


def regret(path: Path) -> Regret:
    """Return the regrets over a table's groups of at least `SMALLEST` measured layouts."""
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
    """Return the layout of a row; None where it was not measured or cannot be simulated."""
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
    """Return step times as `sim plan` ranks layouts: all without contention, the best played in
    full (infinite for the others)."""
    slowest = sorted(layout.uncontended for layout in group)[:BEST][-1]
    return [
        answer(layout.setup).step_time if layout.uncontended <= slowest else float("inf")
        for layout in group
    ]
