"""Every measured row beside its prediction, as pages of Markdown: one a table, and one for all."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sim.analysis.validation.errors import mean_of, summary
from sim.analysis.validation.validate import ValidatedRun, ValidatedTable

INDEX = "README.md"
_FIGURES = {
    "simulated": "rows", "mape": "MAPE", "bias": "bias", "worst": "worst", "spearman": "rank corr.",
    "regret_median": "regret", "noise": "between runs of the same",
}  # fmt: skip
_HEADS = (
    *(
        "row",
        "model",
        "cluster",
        "software",
        "GPUs",
        "layout",
        "batch by micro",
        "seq",
        "precision",
    ),
    *("recompute", "measured", "predicted", "error", "memory", "predicted"),
)
_RIGHT = ("GPUs", "seq", "measured", "predicted", "error", "memory")
_HEAD = """\
# Every measured run beside its prediction

Written by `sim validate --page FOLDER`. One description for each cluster and each software stack,
no constant for a row. Error is predicted / measured - 1. Each page has every row of a table, with
predicted against measured times and the errors against layout, sequence, nodes and precision.

"""
_AXES = ("tp", "cp", "pp", "dp", "dp_replicate", "ep")


def pages(tables: Sequence[ValidatedTable], pictures: Mapping[str, str]) -> dict[str, str]:
    """Files of the folder by name; `pictures` are files beside them, by table."""
    found = {INDEX: _index(tables)}
    for table in tables:
        found[f"{table.name}.md"] = _page(table, pictures.get(table.name, ""))
    return found


def _index(tables: Sequence[ValidatedTable]) -> str:
    heads = ["table", *_FIGURES.values()]
    whole = [summary(table) for table in tables]
    lines = [
        [f"[{own['table']}]({own['table']}.md)", *(_figure(own, key) for key in _FIGURES)]
        for own in whole
    ]
    means = mean_of(whole)
    lines.append(["mean of tables", *(_figure(means, key) for key in _FIGURES)])
    return _HEAD + _table(heads, lines, set(heads[1:]))


def _figure(errors: Mapping[str, Any], key: str) -> str:
    value = errors.get(key)
    if key == "simulated":
        return "" if value is None else f"{value} of {errors['rows']}"
    if value is None:
        return ""
    if key == "spearman":
        return f"{value:.3f}"
    return f"{value:{'+' * (key in ('bias', 'worst'))}.1%}"


def _page(table: ValidatedTable, picture: str) -> str:
    rows = [_row(run) for run in table.rows if run.predicted is not None]
    left_out = [f"- {run.id}: {run.reason}\n" for run in table.rows if run.reason]
    parts = [f"# {table.name}\n\n[All tables]({INDEX})\n"]
    if picture:
        parts.append(f"![Predicted against measured, and errors by property]({picture})\n")
        parts.append("Grey: within 20 %. Orange: the median of the runs above a value.\n")
    if rows:
        parts.append(_table(_HEADS, rows, set(_RIGHT)))
    if left_out:
        parts.append("Not simulated:\n\n" + "".join(left_out))
    return "\n".join(parts)


def _row(run: ValidatedRun) -> list[str]:
    own = run.configuration
    batch = f"{own['global_batch']} by {own['microbatch']}"
    return [
        run.id,
        *(str(own[key]) for key in ("model", "cluster", "software", "gpus")),
        " ".join(_layout(own)),
        batch,
        *(str(own[key]) for key in ("seq", "precision", "recompute")),
        *(_seconds(time) for time in (run.measured, run.predicted)),
        "" if run.error is None else f"{run.error:+.1%}",
        *(_gib(size) for size in (run.memory_measured, run.memory_predicted)),
    ]


def _layout(own: Mapping[str, Any]) -> Iterator[str]:
    """What of a layout is not one, as in "tp8 pp2 interleaved x3 zero1"."""
    yield from (f"{axis}{own[axis]}" for axis in _AXES if own[axis] > 1)
    if own["schedule"]:
        yield own["schedule"] + (f" x{own['interleave']}" if own["interleave"] > 1 else "")
    if own["zero"]:
        yield f"zero{own['zero']}"


def _seconds(time: float | None) -> str:
    return "" if time is None else f"{time:.4g} s"


def _gib(size: float | None) -> str:
    return "" if size is None else f"{size / 2**30:.3g} GiB"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], right: set[str]) -> str:
    rules = ["---:" if head in right else "---" for head in heads]
    return "".join(f"| {' | '.join(row)} |\n" for row in (heads, rules, *rows))
