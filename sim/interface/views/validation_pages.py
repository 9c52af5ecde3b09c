"""Write every measured row beside its prediction as Markdown: a page for each table, and an
index."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sim.analysis.validation.errors import mean_of, summary
from sim.analysis.validation.validate import ValidatedRun, ValidatedTable
from sim.interface.document.markdown import markdown
from sim.interface.document.nodes import (
    Document,
    Link,
    Picture,
    Sentence,
    document,
    section,
    table,
)
from sim.interface.views.validation import written
from sim.results.formatting import Cells

INDEX = "README.md"
_FIGURES = {
    "simulated": "rows", "mape": "MAPE", "bias": "bias", "worst": "worst", "spearman": "rank corr.",
    "regret_median": "regret", "noise": "between runs of the same",
}  # fmt: skip
_HEADS = (
    "row", "model", "cluster", "software", "GPUs", "layout", "batch by micro", "seq", "precision",
    "recompute", "measured", "predicted", "error", "memory", "predicted",
)  # fmt: skip
_INTRODUCTION = """\
Written by `sim validate --page FOLDER`. Each cluster and each software stack has one description;
no row has constants of its own. Error is predicted / measured - 1. Each page has every row of a
table, and plots predicted against measured times and errors against layout, sequence, nodes and
precision."""
_AXES = ("tp", "cp", "pp", "dp", "dp_replicate", "ep")


def pages(tables: Sequence[ValidatedTable], pictures: Mapping[str, str]) -> dict[str, str]:
    """Return the pages' texts by file name; `pictures` are the files of pictures, by table."""
    found = {INDEX: markdown(_index(tables))}
    for validated in tables:
        found[f"{validated.name}.md"] = markdown(_page(validated, pictures.get(validated.name, "")))
    return found


def _index(tables: Sequence[ValidatedTable]) -> Document:
    errors = [summary(table) for table in tables]
    rows: list[Cells] = [
        (Link(error["table"], f"{error['table']}.md"), *(_figure(error, key) for key in _FIGURES))
        for error in errors
    ]
    means = mean_of(errors)
    rows.append(("mean of tables", *(_figure(means, key) for key in _FIGURES)))
    return document(
        "Every measured run beside its prediction",
        Sentence(_INTRODUCTION),
        table(rows, ("table", *_FIGURES.values())),
    )


def _figure(errors: Mapping[str, Any], key: str) -> str:
    value = errors.get(key)
    if key == "simulated":
        return "" if value is None else f"{value} of {errors['rows']}"
    return "" if value is None else written(key, value)


def _page(validated: ValidatedTable, picture: str) -> Document:
    rows = [_row(run) for run in validated.rows if run.predicted is not None]
    left_out = [(run.id, run.reason) for run in validated.rows if run.reason]
    says = "Predicted against measured, and errors by property"
    colours = "Grey: within 20 %. Orange: the median of the runs above a value."
    return document(
        validated.name,
        table([(Link("All tables", INDEX),)]),
        *([Picture(says=says, file=picture), Sentence(colours)] if picture else ()),
        table(rows, _HEADS) if rows else None,
        section("Not simulated", table(left_out, ("row", "reason"))) if left_out else None,
    )


def _row(run: ValidatedRun) -> Cells:
    configuration = run.configuration
    batch = f"{configuration['global_batch']} by {configuration['microbatch']}"
    return (
        run.id,
        *(str(configuration[key]) for key in ("model", "cluster", "software", "gpus")),
        " ".join(_layout(configuration)),
        batch,
        *(str(configuration[key]) for key in ("seq", "precision", "recompute")),
        *(_seconds(time) for time in (run.measured, run.predicted)),
        "" if run.error is None else f"{run.error:+.1%}",
        *(_gib(size) for size in (run.memory_measured, run.memory_predicted)),
    )


def _layout(layout: Mapping[str, Any]) -> Iterator[str]:
    """Yield the parts of a layout that are not 1 or empty, as in "tp8 pp2 interleaved x3 zero1"."""
    yield from (f"{axis}{layout[axis]}" for axis in _AXES if layout[axis] > 1)
    if layout["schedule"]:
        yield layout["schedule"] + (f" x{layout['interleave']}" if layout["interleave"] > 1 else "")
    if layout["zero"]:
        yield f"zero{layout['zero']}"


def _seconds(time: float | None) -> str:
    return "" if time is None else f"{time:.4g} s"


def _gib(size: float | None) -> str:
    return "" if size is None else f"{size / 2**30:.3g} GiB"
