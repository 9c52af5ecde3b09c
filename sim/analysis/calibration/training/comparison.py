"""Measured and predicted quantities side by side, a row for each."""

import csv
from pathlib import Path
from typing import TYPE_CHECKING

from sim.analysis.calibration.training.job_measurement import PHASES, JobMeasurement
from sim.config import files
from sim.config.dataclass import dataclass
from sim.engine.timeline import Timeline
from sim.program.causes import DATA
from sim.results.answer import Answer, Inputs
from sim.results.result import Result

if TYPE_CHECKING:
    import pandas as pd

_PASSES = {"F": "forward", "B": "backward", "optimizer": "optimizer"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedQuantity:
    """A measured and predicted quantity; `unit` is s, B or empty for a count."""

    name: str
    measured: float
    predicted: float
    unit: str = "s"

    @property
    def error(self) -> float | None:
        """predicted / measured - 1, or None if the measured quantity is zero."""
        return self.predicted / self.measured - 1.0 if self.measured else None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobComparison(Answer):
    """A measured job and its prediction; `source` says where the kernel times come from."""

    view = "sim.interface.views.validation:measured"
    picture = "sim.interface.plots.validation:measured"
    unwritten = ("quantities", "measurement", "result")
    derived = ("inputs", "quantities=compared", "machine", "steps", "spread", "drift", "warnings")

    scenario: str
    ranks: int
    quantities: tuple[ComparedQuantity, ...]
    measurement: JobMeasurement
    result: Result
    source: str

    def quantity(self, name: str) -> ComparedQuantity:
        return next(quantity for quantity in self.quantities if quantity.name == name)

    @property
    def inputs(self) -> Inputs:
        return self.result.inputs

    @property
    def compared(self) -> dict[str, dict[str, float | None]]:
        """Each quantity measured and predicted, and the error of the prediction."""
        return {
            row.name: {"measured": row.measured, "predicted": row.predicted, "error": row.error}
            for row in self.quantities
        }

    @property
    def machine(self) -> dict[str, str]:
        return self.measurement.machine

    @property
    def steps(self) -> int:
        return len(self.measurement.steps)

    @property
    def spread(self) -> float:
        """Interquartile range of the step times over their median."""
        return self.measurement.spread

    @property
    def drift(self) -> tuple[float, float]:
        """The shortest and the longest time of the reference kernels, relative to the median."""
        return self.measurement.drift

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.result.remarks

    def to_frame(self) -> "pd.DataFrame":
        """A row for each quantity."""
        import pandas as pd

        return pd.DataFrame.from_dict(self.compared, orient="index")


def compare(
    name: str,
    measurement: JobMeasurement,
    result: Result,
    *,
    memory: float,
    parameters: int,
    source: str,
) -> JobComparison:
    """Compare a measurement and a prediction of a job; `memory` is the predicted peak (bytes)."""
    predicted = {"step": result.step_time, **phases(result)}
    quantities = [
        ComparedQuantity(
            name="step time" if phase == "step" else phase,
            measured=measurement.median(phase),
            predicted=predicted[phase],
        )
        for phase in ("step", *PHASES)
        if phase == "step" or measurement.median(phase)
    ]
    for quantity, measured, expected, unit in (
        ("peak memory", measurement.peak, memory, "B"),
        ("parameters", measurement.parameters, parameters, ""),
    ):
        if measured:
            quantities.append(
                ComparedQuantity(name=quantity, measured=measured, predicted=expected, unit=unit)
            )
    return JobComparison(
        scenario=name,
        ranks=result.ranks,
        quantities=tuple(quantities),
        measurement=measurement,
        result=result,
        source=source,
    )


def phases(result: Result) -> dict[str, float]:
    """Return the seconds of the first role's passes, of its optimizer, and of its exposed
    communication."""
    seconds = {**dict.fromkeys(PHASES, 0.0), **_passes(result.timeline)}
    seconds["communication"] = result.breakdown.get(DATA, 0.0)
    return seconds


def _passes(timeline: Timeline) -> dict[str, float]:
    seconds: dict[str, float] = {}
    for span in timeline.spans:
        phase = _PASSES.get(span.args.get("phase", ""))
        if span.role == 0 and phase:
            seconds[phase] = seconds.get(phase, 0.0) + span.duration
    return seconds


def write_steps(comparison: JobComparison, path: Path) -> None:
    """Write a row of CSV for every step: its round, the round's reference (s), seconds by phase."""
    with files.atomic_write(path) as part, part.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["round", "reference", *PHASES, "step"])
        for number, measured in enumerate(comparison.measurement.rounds, start=1):
            for step in measured.steps:
                seconds = [step.get(phase, 0.0) for phase in PHASES]
                writer.writerow([number, measured.reference, *seconds, step["step"]])
