"""Runs with other seeds: mean and quantiles of time, rate and loss."""

from collections.abc import Callable

from sim.analysis.samples.seeds import Seeds
from sim.config.units import human_seconds
from sim.interface.document.nodes import Document, document, table
from sim.results.formatting import Cells, loss

_SHOWN: dict[str, Callable[[float], str]] = {
    "time": human_seconds, "step_time": human_seconds, "time_to_target": human_seconds,
    "makespan": human_seconds, "loss": loss
}  # fmt: skip


def view(seeds: Seeds) -> Document:
    """A row for each quantity."""
    rows: list[Cells] = []
    head: Cells = ()
    for name, known in seeds.drawn.items():
        shown = _SHOWN.get(name, "{:,.4g}".format)
        head = tuple(key for key in known if key != "runs")
        rows.append((name.replace("_", " "), *(shown(known[key]) for key in head)))
    last = seeds.seed + seeds.samples - 1
    title = f"{seeds.scenario}, {seeds.samples} runs, seeds {seeds.seed} to {last}"
    return document(title, table(rows, ("", *head)))
