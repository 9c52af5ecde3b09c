"""The answer to many drawn steps with stragglers."""

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from sim.analysis.samples.rank_slowdowns import Floats
from sim.config.dataclass import dataclass
from sim.results.answer import Answer, Inputs

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples(Answer):
    """Step times (s) of many steps, and where their loss comes from.

    `healthy` is the step with every rank as fast as usual; `loss` the mean step beyond it, split
    in two ways: `by_meeting` adds up to it (where time is lost by waiting), `by_cause` is what the
    mean step would gain without each cause. `sensitivity` has one row a stage: the seconds that
    one tensor-parallel group of it, slower by a tenth, costs the step. `removed` is the mean step
    after the slowest k nodes have given way to ordinary ones. `owed` [stages][replicas] are the
    seconds of the mean step that each group accounts for (first order). These are
    computed on the first `closer` samples. `mean_error` and `worst_error` are replay's against the
    clock, and none of a recording, which is played on it; `sensitivity` and `owed` are empty there.
    """

    view = "sim.interface.views.samples"
    picture = "sim.interface.plots.samples"
    unwritten = ("step_times", "owed")
    derived: ClassVar[Mapping[str, str]] = {
        "step_times": "drawn",
        "owed": "owed_by",
        "median": "median",
        "p95": "p95",
        "p99": "p99",
        "mean": "mean",
        "loss": "loss",
    }

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
        """The mean step beyond the healthy one (s)."""
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
        """A row for each step: its time (s)."""
        import pandas as pd

        return pd.DataFrame({"step_time": self.step_times}).rename_axis("sample")
