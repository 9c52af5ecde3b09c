"""Runs of shared updates with other seeds: how time, rate and loss vary."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.config.errors import InputError
from sim.config.units import human_seconds
from sim.results.outcome_text import aligned
from sim.results.shown import Shown
from sim.results.tables import preformatted
from sim.scenario.scenario import SharingScenario
from sim.simulate_sharing import simulate_sharing

Floats = NDArray[np.float64]
_SHARES = {"median": 0.5, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingSamples(Shown):
    """Runs of seeds `seed`, `seed` + 1, ...: seconds, samples a second and losses, one of each."""

    view = "sim.samples.sharing"

    scenario: str
    samples: int
    seed: int
    times: Floats = field(repr=False)
    rates: Floats = field(repr=False)
    losses: Floats = field(repr=False)

    @property
    def named(self) -> Mapping[str, Floats]:
        """What was drawn, by name; losses only where something is learnt."""
        drawn = {"time": self.times, "samples_per_second": self.rates}
        return drawn if np.isnan(self.losses).any() else {**drawn, "loss": self.losses}

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: every run, means and quantiles."""
        plain: dict[str, Any] = {key: getattr(self, key) for key in ("scenario", "samples", "seed")}
        for name, values in self.named.items():
            quantiles = {key: float(np.quantile(values, share)) for key, share in _SHARES.items()}
            plain[name] = {"runs": values.tolist(), "mean": float(values.mean()), **quantiles}
        return plain


def samples(scenario: SharingScenario, count: int) -> SharingSamples:
    """Simulate so many runs. Raises `InputError`."""
    if count < 1:
        raise InputError("--samples", f"{count} is not a number of samples", "draw 1 or more")
    first = scenario.sharing.seed
    runs = [
        simulate_sharing(
            replace(scenario, sharing=replace(scenario.sharing, seed=first + number)), keep_spans=0
        )
        for number in range(count)
    ]
    losses = [float("nan") if run.loss is None else run.loss for run in runs]
    return SharingSamples(
        scenario=scenario.name,
        samples=count,
        seed=first,
        times=np.array([run.time for run in runs]),
        rates=np.array([run.samples_per_second for run in runs]),
        losses=np.array(losses),
    )


def text(drawn: SharingSamples) -> str:
    """Mean and quantiles."""
    rows = [("", "mean", *_SHARES)]
    for name, values in drawn.named.items():
        show = human_seconds if name == "time" else "{:,.4g}".format
        figures = [float(values.mean()), *(float(np.quantile(values, s)) for s in _SHARES.values())]
        rows.append((name.replace("_", " "), *(show(figure) for figure in figures)))
    last = drawn.seed + drawn.samples - 1
    return f"{drawn.scenario}, {drawn.samples} runs, seeds {drawn.seed} to {last}\n{aligned(rows)}"


def html(drawn: SharingSamples) -> str:
    """The same page for a notebook."""
    return preformatted(text(drawn))
