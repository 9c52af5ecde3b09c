"""A measured job beside its prediction, and how much the machine itself drifted."""

from sim.analysis.calibration.training.comparison import ComparedQuantity, JobComparison
from sim.config.units import human_bytes, human_seconds
from sim.interface.document.nodes import Document, Sentence, document, table, warnings
from sim.results.formatting import Cells, several


def view(comparison: JobComparison) -> Document:
    """A row for each quantity."""
    measurement = comparison.measurement
    device, torch = (measurement.machine.get(key, "") for key in ("device", "torch"))
    low, high = measurement.drift
    return document(
        f"{comparison.scenario}, {several(comparison.ranks, 'rank')} on {device}, torch {torch}",
        table(map(_cells, comparison.quantities), ("", "measured", "predicted", "error")),
        Sentence(
            f"{len(measurement.steps)} steps in {len(measurement.rounds)} rounds, spread "
            f"{measurement.spread:.1%}; the machine drifted by {low:+.1%} to {high:+.1%} "
            "(reference kernels)"
        ),
        Sentence(f"kernel times: {comparison.source}"),
        *warnings(comparison.warnings),
    )


def _cells(row: ComparedQuantity) -> Cells:
    error = "" if row.error is None else f"{row.error:+.1%}"
    return row.name, _human(row.measured, row.unit), _human(row.predicted, row.unit), error


def _human(value: float, unit: str) -> str:
    if unit == "B":
        return human_bytes(value)
    return human_seconds(value) if unit == "s" else f"{value:,.0f}"
