"""Measured and predicted side by side: one row a quantity."""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.analysis.calibration.training.job_measurement import PHASES, JobMeasurement
from sim.config import files
from sim.engine.timeline import Timeline
from sim.program.causes import DATA
from sim.results.answer import Answer
from sim.results.result import Result

_PASSES = {"F": "forward", "B": "backward", "optimizer": "optimizer"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedQuantity:
    """One quantity; `unit` is s, B or empty for a count."""

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
    """A measured job and its prediction; `source` says where the kernel times are from."""

    view = "sim.interface.views.measured"
    picture = "sim.interface.plots.measured"

    scenario: str
    ranks: int
    quantities: tuple[ComparedQuantity, ...]
    measurement: JobMeasurement
    result: Result
    source: str

    def quantity(self, name: str) -> ComparedQuantity:
        return next(quantity for quantity in self.quantities if quantity.name == name)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: seconds, bytes, fractions."""
        return {
            "scenario": self.scenario,
            "ranks": self.ranks,
            "machine": self.measurement.machine,
            "times": self.source,
            "steps": len(self.measurement.steps),
            "rounds": len(self.measurement.rounds),
            "spread": self.measurement.spread,
            "drift": list(self.measurement.drift),
            **{
                quantity.name.replace(" ", "_"): {
                    "measured": quantity.measured,
                    "predicted": quantity.predicted,
                    "error": quantity.error,
                }
                for quantity in self.quantities
            },
            "warnings": [*self.result.remarks],
        }


def compare(
    name: str,
    measurement: JobMeasurement,
    result: Result,
    *,
    memory: float,
    parameters: int,
    source: str,
) -> JobComparison:
    """A measurement and a prediction of the same job; `memory` are the predicted bytes."""
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
    """Seconds of the first role's passes and optimizer, and of its exposed communication."""
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
    """Every step as a row of CSV: round, the round's reference (s), seconds by phase."""
    with files.atomic_write(path) as part, part.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["round", "reference", *PHASES, "step"])
        for number, measured in enumerate(comparison.measurement.rounds, start=1):
            for step in measured.steps:
                seconds = [step.get(phase, 0.0) for phase in PHASES]
                writer.writerow([number, measured.reference, *seconds, step["step"]])
