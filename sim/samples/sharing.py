"""Runs of shared updates with other seeds: how time, rate and loss vary."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sim.config import limit
from sim.config.errors import InputError
from sim.config.progress import counted
from sim.config.stopping import so_far
from sim.config.units import human_seconds
from sim.results.answer import Answer, Inputs
from sim.results.formatting import loss
from sim.results.outcome import Outcome
from sim.results.outcome_text import aligned
from sim.results.tables import preformatted
from sim.scenario.scenario import SharingScenario
from sim.scenario.sharing_setup import from_scenario
from sim.sharing.learning.own_task import Task
from sim.simulate_sharing import simulate_sharing

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
_DRAWN = ("time", "samples_per_second", "loss", "accuracy", "time_to_target")
_SHARES = {"median": 0.5, "p95": 0.95, "p99": 0.99}

_SHOWN: dict[str, Callable[[float], str]] = {
    "time": human_seconds, "time_to_target": human_seconds, "loss": loss
}  # fmt: skip
_OF_RUN = 0.05  # s at least, on one core


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingSamples(Answer):
    """Runs of seeds `seed`, `seed` + 1, ...; none keeps its timeline.

    `drawn` has by name (`time`, `samples_per_second`, and where something is learnt `loss`,
    `accuracy` and `time_to_target`) one value of each of the `runs`, their `mean` and quantiles.
    """

    view = "sim.samples.sharing"
    picture = "sim.plots.sharing_samples"
    unwritten = ("runs",)
    derived: ClassVar[Mapping[str, str]] = {
        "samples": "samples",
        "inputs": "inputs",
        "drawn": "drawn",
        "diverged": "diverged",
    }

    scenario: str
    seed: int
    runs: tuple[Outcome, ...] = field(repr=False)

    @property
    def samples(self) -> int:
        """How many runs."""
        return len(self.runs)

    @property
    def named(self) -> Mapping[str, Floats]:
        """One of each run, by name; losses and the like only where something is learnt, infinite
        where it diverged, times to a target where any run has reached it, infinite where not."""
        drawn = {name: [getattr(run, name) for run in self.runs] for name in _DRAWN}
        known = {name: own for name, own in drawn.items() if any(one is not None for one in own)}
        return {name: _above(own) for name, own in known.items()}

    @property
    def inputs(self) -> Inputs:
        return self.runs[0].inputs

    @property
    def fits(self) -> bool:
        return all(run.fits for run in self.runs)

    @property
    def diverged(self) -> int:
        """How many runs have."""
        return sum(run.diverged for run in self.runs)

    @property
    def drawn(self) -> dict[str, dict[str, Any]]:
        """Of each name the runs' values, their mean and quantiles."""
        return {name: _distribution(values) for name, values in self.named.items()}

    def to_frame(self) -> "pd.DataFrame":
        """One row a run, by its seed; `curves` has what was learnt on the way."""
        import pandas as pd

        seeds = pd.RangeIndex(self.seed, self.seed + self.samples, name="seed")
        return pd.DataFrame(dict(self.named), index=seeds)


def _distribution(values: Floats) -> dict[str, Any]:
    quantiles = {key: _quantile(values, share) for key, share in _SHARES.items()}
    return {"runs": values.tolist(), "mean": float(values.mean()), **quantiles}


def samples(scenario: SharingScenario, count: int, *, task: Task | None = None) -> SharingSamples:
    """Simulate so many runs, of the scenario's task or of `task`. Raises `InputError`."""
    if count < 1:
        raise InputError("--samples", f"{count} is not a number of samples", "draw 1 or more")
    effort = max(from_scenario(scenario, task=task, keep_spans=0).effort, _OF_RUN)
    limit.refuse_long("--samples", f"{count:,} runs", count * effort)
    first = scenario.sharing.seed
    drawn = so_far(
        simulate_sharing(
            replace(scenario, sharing=replace(scenario.sharing, seed=first + number)),
            task=task,
            keep_spans=0,
        )
        for number in range(count)
    )
    runs = tuple(counted(drawn, total=count, unit="run"))
    return SharingSamples(scenario=scenario.name, seed=first, runs=runs)


def _above(values: Sequence[float | None]) -> Floats:
    """Numbers that are none count as larger than all others."""
    return np.array([inf if one is None or not isfinite(one) else one for one in values])


def _quantile(values: Floats, share: float) -> float:
    """Between two values, as numpy has it; infinite where one of them is."""
    method = "linear" if np.isfinite(values).all() else "higher"
    return float(np.quantile(values, share, method=method))  # type: ignore[call-overload]


def curves(runs: Sequence[Outcome], seed: int = 0) -> "pd.DataFrame":
    """The points of all curves: `seed`, `seconds`, `samples`, `loss`, `bytes`, `accuracy`."""
    import pandas as pd

    return pd.concat(
        [run.curve_frame().assign(seed=seed + number) for number, run in enumerate(runs)],
        ignore_index=True,
    )


def text(drawn: SharingSamples) -> str:
    """Mean and quantiles."""
    rows = [("", "mean", *_SHARES)]
    for name, values in drawn.named.items():
        show = _SHOWN.get(name, "{:,.4g}".format)
        figures = [float(values.mean()), *(_quantile(values, s) for s in _SHARES.values())]
        rows.append((name.replace("_", " "), *(show(figure) for figure in figures)))
    last = drawn.seed + drawn.samples - 1
    return f"{drawn.scenario}, {drawn.samples} runs, seeds {drawn.seed} to {last}\n{aligned(rows)}"


def html(drawn: SharingSamples) -> str:
    """The same page for a notebook."""
    return preformatted(text(drawn))
