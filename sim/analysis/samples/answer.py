"""The answer to many drawn steps with stragglers."""

from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np

from sim.analysis.samples.rank_slowdowns import Floats
from sim.config.dataclass import dataclass
from sim.results.answer import Answer, Inputs

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples(Answer):
    """Step times (s) of many steps with random stragglers, and where the lost time comes from.

    `healthy` is the step with every rank at its usual speed; `loss` is the mean step minus
    `healthy`. The parts of `by_meeting` add up to `loss` and say where ranks wait. `by_cause` says
    for each cause by how much the mean step would be shorter without it. `sensitivity` says for
    each stage by how many seconds the step is longer if a tensor-parallel group of the stage is a
    tenth slower. `removed` is the mean step after the slowest k nodes are replaced by ordinary
    nodes. `owed` [stages][replicas] are the seconds of the mean step that each group causes (first
    order). All of these are computed on the first `closer` samples. `mean_error` and `worst_error`
    are errors of the replay against the clock. A recording is played on the clock, so both are 0,
    and `sensitivity` and `owed` are empty.
    """

    view = "sim.interface.views.samples"
    picture = "sim.interface.plots.samples"
    unwritten = ("step_times", "owed")
    derived = ("step_times=drawn", "owed=owed_by", "median", "p95", "p99", "mean", "loss")

    scenario: str
    inputs: Inputs
    samples: int
    seed: int
    ranks: int
    healthy: float
    step_times: Floats = field(repr=False)
    by_meeting: dict[str, float]
    by_cause: dict[str, float]
    sensitivity: tuple[dict[str, float], ...]
    removed: tuple[dict[str, float], ...]
    owed: Floats = field(repr=False)
    closer: int
    contended: bool
    mean_error: float
    worst_error: float
    fits: bool | None
    notes: tuple[str, ...]
    wall_seconds: float = field(compare=False)

    def quantile(self, share: float) -> float:
        return float(np.quantile(self.step_times, share))

    @property
    def mean(self) -> float:
        return float(self.step_times.mean())

    @property
    def loss(self) -> float:
        """The mean step minus the healthy step (s)."""
        return self.mean - self.healthy

    @property
    def median(self) -> float:
        return self.quantile(0.5)

    @property
    def p95(self) -> float:
        return self.quantile(0.95)

    @property
    def p99(self) -> float:
        return self.quantile(0.99)

    @property
    def drawn(self) -> list[float]:
        return list(map(float, self.step_times))

    @property
    def owed_by(self) -> list[list[float]]:
        return [list(map(float, row)) for row in self.owed]

    @property
    def columns(self) -> dict[str, float]:
        quantiles = {f"samples.p{share}": self.quantile(share / 100) for share in (50, 95, 99)}
        return {"samples.mean": self.mean, "samples.loss": self.loss, **quantiles}

    def to_frame(self) -> "pd.DataFrame":
        """Return a row for each step: its time (s)."""
        import pandas as pd

        return pd.DataFrame({"step_time": self.step_times}).rename_axis("sample")
