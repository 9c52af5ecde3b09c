"""Numbers of workers: time to the target and cost of each, and where to stop."""

from math import isfinite

from sim.interface.document.nodes import Document, Sentence, document, table
from sim.jobs.sharing.worker_counts import WorkerCount, WorkerCounts
from sim.results.formatting import Cells, count

_HEAD = ("workers", "GPUs", "batch", "samples", "time", "cost", "gain")


def view(counts: WorkerCounts) -> Document:
    """A row for each number of workers, and where to stop."""
    rows = table(map(_cells, counts.rows), _HEAD)
    return document(counts.scenario, rows, Sentence(counts.basis), Sentence(counts.sentence))


def _cells(row: WorkerCount) -> Cells:
    return (
        f"{row.workers:,}",
        f"{row.gpus:,}",
        f"{row.batch:,.0f}",
        count(row.samples) if isfinite(row.samples) else "",
        row.time_shown,
        row.cost_shown,
        f"{row.gain:.0%}" if isfinite(row.gain) else "",
    )
