"""Measured and predicted side by side: one row a quantity, as text, JSON and CSV."""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.analysis.calibration.training.job_measurement import PHASES, JobMeasurement
from sim.config import files
from sim.config.units import human_bytes, human_seconds
from sim.engine.timeline import Timeline
from sim.program.causes import DATA
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
class JobComparison:
    """A measured job and its prediction; `source` says where the kernel times are from."""

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

    def __str__(self) -> str:
        return text(self)


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


def text(comparison: JobComparison) -> str:
    """A table, and below it how much the machine itself drifted."""
    measurement = comparison.measurement
    device, torch = (measurement.machine.get(key, "") for key in ("device", "torch"))
    ranks = f"{comparison.ranks} ranks" if comparison.ranks > 1 else "1 rank"
    lines = [f"{comparison.scenario}, {ranks} on {device}, torch {torch}"]
    lines.append(f"  {'':14}{'measured':>12}{'predicted':>12}{'error':>9}")
    for row in comparison.quantities:
        error = "" if row.error is None else f"{row.error:+.1%}"
        values = f"{_human(row.measured, row.unit):>12}{_human(row.predicted, row.unit):>12}"
        lines.append(f"  {row.name:14}{values}{error:>9}")
    low, high = measurement.drift
    lines.append(
        f"  {len(measurement.steps)} steps in {len(measurement.rounds)} rounds, spread "
        f"{measurement.spread:.1%}; the machine drifted by {low:+.1%} to {high:+.1%} "
        "(reference kernels)"
    )
    lines.append(f"  kernel times: {comparison.source}")
    lines += [f"warning: {warning}" for warning in comparison.result.remarks]
    return "\n".join(lines)


def _human(value: float, unit: str) -> str:
    if unit == "B":
        return human_bytes(value)
    return human_seconds(value) if unit == "s" else f"{value:,.0f}"


def write_steps(comparison: JobComparison, path: Path) -> None:
    """Every step as a row of CSV: round, the round's reference (s), seconds by phase."""
    with files.atomic_write(path) as part, part.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["round", "reference", *PHASES, "step"])
        for number, measured in enumerate(comparison.measurement.rounds, start=1):
            for step in measured.steps:
                seconds = [step.get(phase, 0.0) for phase in PHASES]
                writer.writerow([number, measured.reference, *seconds, step["step"]])
