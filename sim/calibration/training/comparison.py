"""Measured beside predicted: one row a quantity, as text, JSON and CSV."""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.calibration.training.observation import PHASES, Observation
from sim.config import files
from sim.config.units import human_bytes, human_seconds
from sim.engine.timeline import Timeline
from sim.results.result import Result

_PASSES = {"F": "forward", "B": "backward", "optimizer": "optimizer"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One quantity; `unit` is s, B or empty for a count."""

    name: str
    measured: float
    predicted: float
    unit: str = "s"

    @property
    def error(self) -> float | None:
        """predicted / measured - 1, or None of nothing."""
        return self.predicted / self.measured - 1.0 if self.measured else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A measured job beside its prediction."""

    scenario: str
    ranks: int
    rows: tuple[Row, ...]
    observation: Observation
    result: Result
    source: str

    def row(self, name: str) -> Row:
        return next(row for row in self.rows if row.name == name)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: seconds, bytes, fractions."""
        seen = self.observation
        return {
            "scenario": self.scenario,
            "ranks": self.ranks,
            "machine": seen.machine,
            "times": self.source,
            "steps": len(seen.steps),
            "rounds": len(seen.rounds),
            "spread": seen.spread,
            "drift": list(seen.drift),
            **{
                row.name.replace(" ", "_"): {
                    "measured": row.measured,
                    "predicted": row.predicted,
                    "error": row.error,
                }
                for row in self.rows
            },
            "warnings": list(self.result.warnings),
        }

    def __str__(self) -> str:
        return text(self)


def compare(
    name: str, seen: Observation, result: Result, *, memory: float, parameters: int, source: str
) -> Comparison:
    """Rows of an observation and a prediction of the same job; `memory` are the predicted bytes."""
    predicted = phases(result)
    rows = [Row(name="step time", measured=seen.median("step"), predicted=result.step_time)]
    rows += [
        Row(name=phase, measured=seen.median(phase), predicted=predicted[phase])
        for phase in PHASES
        if seen.median(phase)
    ]
    if seen.peak:
        rows.append(Row(name="peak memory", measured=seen.peak, predicted=memory, unit="B"))
    rows.append(Row(name="parameters", measured=seen.parameters, predicted=parameters, unit=""))
    return Comparison(
        scenario=name,
        ranks=result.ranks,
        rows=tuple(rows),
        observation=seen,
        result=result,
        source=source,
    )


def phases(result: Result) -> dict[str, float]:
    """Seconds of the first role's passes and optimizer, and of its exposed communication."""
    spent = {**dict.fromkeys(PHASES, 0.0), **_passes(result.timeline)}
    spent["communication"] = result.breakdown.get("data communication", 0.0)
    return spent


def _passes(timeline: Timeline) -> dict[str, float]:
    spent: dict[str, float] = {}
    for span in timeline.spans:
        phase = _PASSES.get(span.args.get("phase", ""))
        if span.role == 0 and phase:
            spent[phase] = spent.get(phase, 0.0) + span.duration
    return spent


def text(found: Comparison) -> str:
    """A table, and under it how much the machine itself wandered."""
    seen = found.observation
    what = seen.machine.get("device", "")
    ranks = f"{found.ranks} ranks" if found.ranks > 1 else "1 rank"
    lines = [f"{found.scenario}, {ranks} on {what}, torch {seen.machine.get('torch', '')}"]
    lines.append(f"  {'':14}{'measured':>12}{'predicted':>12}{'error':>9}")
    for row in found.rows:
        error = "" if row.error is None else f"{row.error:+.1%}"
        values = f"{_shown(row.measured, row.unit):>12}{_shown(row.predicted, row.unit):>12}"
        lines.append(f"  {row.name:14}{values}{error:>9}")
    low, high = seen.drift
    lines.append(
        f"  {len(seen.steps)} steps in {len(seen.rounds)} rounds, spread {seen.spread:.1%}; the "
        f"machine drifted by {low:+.1%} to {high:+.1%} (reference kernels)"
    )
    lines.append(f"  kernel times: {found.source}")
    lines += [f"warning: {warning}" for warning in found.result.warnings]
    return "\n".join(lines)


def _shown(value: float, unit: str) -> str:
    if unit == "B":
        return human_bytes(value)
    return human_seconds(value) if unit == "s" else f"{value:,.0f}"


def write_rows(found: Comparison, path: Path) -> None:
    """Every step as a row of CSV: round, the round's reference (s), seconds by phase."""
    with files.atomic_write(path) as part, part.open("w", encoding="utf-8", newline="") as out:
        lines = csv.writer(out)
        lines.writerow(["round", "reference", *PHASES, "step"])
        for number, one in enumerate(found.observation.rounds, start=1):
            for laps in one.steps:
                spent = [laps.get(phase, 0.0) for phase in PHASES]
                lines.writerow([number, one.reference, *spent, laps["step"]])
