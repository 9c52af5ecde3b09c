"""Runs of one scenario with several seeds: how time, rate and loss vary."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import chain, islice
from math import inf, isfinite, nan
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sim import kind, questions
from sim.config import limit
from sim.config.counting import counted
from sim.config.dataclass import dataclass
from sim.config.stopping import so_far
from sim.results.answer import Answer, Inputs, JobAnswer
from sim.scenario.scenario import BaseScenario

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
_DRAWN = (
    "time", "step_time", "samples_per_second", "loss", "accuracy", "time_to_target", "slowdown",
    "makespan", "utilisation",
)  # fmt: skip
_SHARES = {"median": 0.5, "p95": 0.95, "p99": 0.99}

_ROUNDING = 1e-12  # a spread that is a smaller share of the mean counts as zero
_OF_RUN = 0.05  # the least seconds that a run takes on one core


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeds(Answer):
    """Runs of seeds `seed`, `seed` + 1, ... No run keeps its timeline.

    `drawn` has names as keys: `time`, `samples_per_second`, and where something is learnt `loss`,
    `accuracy` and `time_to_target`. For each name it has the value of each run (`runs`), their
    `mean`, their `spread` (standard deviation, n - 1) and quantiles.
    """

    view = "sim.interface.views.samples:seeds"
    picture = "sim.interface.plots.samples:seeds"
    unwritten = ("runs",)
    derived = ("samples", "inputs", "drawn", "diverged")

    scenario: str
    seed: int
    runs: tuple[JobAnswer, ...] = field(repr=False)

    @property
    def samples(self) -> int:
        """The number of runs."""
        return len(self.runs)

    @property
    def named(self) -> Mapping[str, Floats]:
        """The values of all runs by name. A value is infinite where a run diverged or never reached
        the target. Names are left out where no run has a value."""
        drawn = {name: [run.get(name) for run in self.runs] for name in _DRAWN}
        known = {name: row for name, row in drawn.items() if any(cell is not None for cell in row)}
        return {name: _above(row) for name, row in known.items()}

    @property
    def inputs(self) -> Inputs:
        return self.runs[0].inputs

    @property
    def fits(self) -> bool:
        return all(run.fits for run in self.runs)

    @property
    def diverged(self) -> int:
        """The number of runs that diverged."""
        return sum(bool(run.get("diverged")) for run in self.runs)

    @property
    def drawn(self) -> dict[str, dict[str, Any]]:
        """The runs' values for each name, with their mean and quantiles."""
        return {name: _distribution(values) for name, values in self.named.items()}

    @property
    def misfit(self) -> str:
        return next((run.misfit for run in self.runs if run.misfit), "")

    @property
    def columns(self) -> dict[str, Any]:
        """The mean of each figure over all seeds. Figures that are drawn also have each run's
        value, the spread and quantiles (`samples.`)."""
        drawn = {
            f"samples.{name}.{key}": value
            for name, found in self.drawn.items()
            for key, value in found.items()
        }
        rows = [run.columns for run in self.runs]
        means = {name: _mean(name, [row.get(name) for row in rows]) for name in rows[0]}
        return means | drawn

    @property
    def wall_seconds(self) -> float:
        return sum(run.wall_seconds for run in self.runs)

    def to_frame(self) -> "pd.DataFrame":
        """Return a row for each run, by its seed; `curves` has the course of learning."""
        import pandas as pd

        seeds = pd.RangeIndex(self.seed, self.seed + self.samples, name="seed")
        return pd.DataFrame(dict(self.named), index=seeds)


def _distribution(values: Floats) -> dict[str, Any]:
    quantiles = {key: _quantile(values, share) for key, share in _SHARES.items()}
    spread = float(values.std(ddof=1)) if len(values) > 1 and np.isfinite(values).all() else nan
    if spread < _ROUNDING * abs(values.mean()):
        spread = 0.0
    return {"runs": values.tolist(), "mean": float(values.mean()), "spread": spread, **quantiles}


def _mean(name: str, values: Sequence[Any]) -> Any:
    """Return the mean of numbers. For truth values, return whether all hold (for `diverged`,
    whether any holds). For other values, return the common value. Return None if a value is
    unknown, or if other values differ."""
    if any(value is None for value in values):
        return None
    if all(isinstance(value, bool) for value in values):
        return any(values) if name == "diverged" else all(values)
    if all(isinstance(value, int | float) for value in values):
        return float(np.mean(values))
    return values[0] if len(set(map(repr, values))) == 1 else None


def samples(scenarios: Iterator[BaseScenario], count: int, *, task: Any = None) -> Seeds:
    """Play the first `count` of scenarios that differ in their seeds. Workers learn `task` if it is
    given. Raises `InputError`."""
    first = next(scenarios)
    effort = questions.effort(kind.set_up(first, task=task, brief=True))
    limit.refuse_long("--samples", f"{count:,} runs", count * max(effort, _OF_RUN))
    played = so_far(
        kind.answer(kind.set_up(scenario, task=task, brief=True))
        for scenario in islice(chain([first], scenarios), count)
    )
    runs = tuple(counted(played, total=count, unit="run"))
    return Seeds(scenario=first.name, seed=first.first_seed, runs=runs)


def _above(values: Sequence[float | None]) -> Floats:
    """Return the values; unknown and infinite values become +infinity, larger than all other
    values."""
    return np.array([inf if cell is None or not isfinite(cell) else cell for cell in values])


def _quantile(values: Floats, share: float) -> float:
    """Return numpy's quantile, with interpolation only where all values are finite."""
    method = "linear" if np.isfinite(values).all() else "higher"
    return float(np.quantile(values, share, method=method))  # type: ignore[call-overload]


def curves(runs: Sequence[Any], seed: int = 0) -> "pd.DataFrame":
    """Return the points of all curves: seed, seconds, samples, loss, bytes and accuracy."""
    import pandas as pd

    frames = [run.curve_frame().assign(seed=seed + number) for number, run in enumerate(runs)]
    whole: pd.DataFrame = pd.concat(frames, ignore_index=True)
    return whole
