"""Show a validation: measured and predicted times of every row, and the errors of the tables."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sim.analysis.calibration.training.comparison import ComparedQuantity, JobComparison
from sim.analysis.validation import changes
from sim.analysis.validation.ablation import SHOWN, Ablation
from sim.analysis.validation.answer import Validation
from sim.analysis.validation.errors import mean_of, missed, summary
from sim.analysis.validation.figures import FigureRun, FigureValidation, PairRun
from sim.analysis.validation.parts import PartValidation
from sim.analysis.validation.validate import ValidatedRun, ValidatedTable
from sim.config.grouped import grouped
from sim.config.readable import human_bytes, human_seconds
from sim.interface.document.nodes import (
    Document,
    Section,
    Sentence,
    document,
    section,
    table,
    warnings,
)
from sim.results.formatting import Cells, several

_TITLES = {
    "simulated": "rows", "mape": "MAPE", "median": "median", "bias": "bias", "worst": "worst",
    "spearman": "rank corr.", "naive_mape": "naive MAPE", "regret_median": "regret",
    "regret_mean": "its mean",
}  # fmt: skip
_MEAN = "mean of tables"
_BARS = "* bias beyond 5 %, rank correlation below 0.95, or regret above 2 % (its mean above 10 %)"
_HELD = ("within", "width", "score", "off")

_HEAD = ("", "measured", "median", "p95", "bias")


def view(answer: Validation) -> Document:
    """Show every row, the rows that were not simulated and why, and the errors of the tables."""
    tables = answer.tables
    return document(
        "",
        *([] if answer.quiet else map(_rows, tables)),
        _left_out(tables),
        _summaries(tables),
        _memories(tables),
        _repeats(tables),
        *(_changes(table, found) for table in tables if (found := changes.changes(table))),
        *(_coverage(answer) if answer.covered else ()),
        *warnings(answer.warnings),
        line=f"{len(tables)} tables, {sum(len(table.rows) for table in tables)} rows",
    )


def _rows(validated: ValidatedTable) -> Section | None:
    rows = [_row(run) for run in validated.rows if run.predicted is not None]
    if not rows:
        return None
    return section(validated.name, table(rows, ("row", "measured", "predicted", "error", "")))


def _row(run: ValidatedRun) -> Cells:
    measured = "did not fit" if run.measured is None else human_seconds(run.measured)
    error = "" if run.error is None else f"{run.error:+.1%}"
    return run.id, measured, human_seconds(run.predicted or 0.0), error, _row_memory(run)


def _row_memory(run: ValidatedRun) -> str:
    if run.memory_error is None or run.memory_predicted is None or run.memory_measured is None:
        return "" if run.fits_predicted in (None, run.fits_measured) else "fits: wrong"
    measured, predicted = human_bytes(run.memory_measured), human_bytes(run.memory_predicted)
    return f"{run.memory_kind} {measured} {predicted} {run.memory_error:+.1%}"


def _left_out(tables: Sequence[ValidatedTable]) -> Section | None:
    left_out = [(table, run) for table in tables for run in table.rows if run.reason]
    if not left_out:
        return None
    lines = (f"  {table.name}, {run.fault}" for table, run in left_out)
    return section(f"not simulated ({len(left_out)} rows):", *map(Sentence, lines))


def _summaries(tables: Sequence[ValidatedTable]) -> Section:
    """Show a row for each table, and a mean if there are several. Regret, the cost of choosing the
    layout that is ranked first, is shown if any table has it."""
    shown = [summary(view) for table in tables for view in table.views]
    titles = {
        key: title
        for key, title in _TITLES.items()
        if not key.startswith("regret") or any(key in errors for errors in shown)
    }
    if len(tables) > 1:
        shown.append({"table": _MEAN, **mean_of([summary(table) for table in tables])})
    rows = [(errors["table"], *(_cell(key, errors) for key in titles)) for errors in shown]
    marked = any("*" in cell for row in rows for cell in row)
    head = ("table", *titles.values())
    return section("", table(rows, head), Sentence(_BARS) if marked else None)


def _cell(key: str, errors: Mapping[str, Any]) -> str:
    value = errors.get(key)
    if key == "simulated":
        return "" if value is None else f"{value}/{errors['rows']}"
    if value is None:
        return "-"
    return written(key, value) + "*" * (key in missed(errors))


def written(key: str, value: float) -> str:
    """Return an error of a table as text."""
    if key == "spearman":
        return f"{value:.3f}"
    return f"{value:{'+' * (key in ('bias', 'worst'))}.1%}"


def _memories(tables: Sequence[ValidatedTable]) -> Section | None:
    lines = [
        f"{table.name} memory: {_memory_line(errors)}"
        for table in tables
        if "memory_median" in (errors := summary(table)) or errors.get("fits_accuracy") is not None
    ]
    return section("", *map(Sentence, lines)) if lines else None


def _memory_line(errors: Mapping[str, Any]) -> str:
    parts = [
        f"median error{key.removeprefix('memory_median').replace('_zero', ' zero-')} {value:.1%}"
        for key, value in errors.items()
        if key.startswith("memory_median")
    ]
    if errors.get("fits_accuracy") is not None:
        cells = ", ".join(f"{key.replace('_', ' ')} {n}" for key, n in errors["fits"].items())
        parts.append(f"balanced accuracy of fits {errors['fits_accuracy']:.1%} ({cells})")
    return "; ".join(parts)


def _repeats(tables: Sequence[ValidatedTable]) -> Section | None:
    """Show how far repeated runs of a configuration differ; no prediction can be closer."""
    lines = [
        f"  {table.name}: {errors['noise']:.1%} a run; slowest to fastest {errors['apart']:.1%}"
        f" (median of {errors['repeated']} configurations)"
        for table in tables
        if "noise" in (errors := summary(table))
    ]
    return section("measured more than once:", *map(Sentence, lines)) if lines else None


def _changes(validated: ValidatedTable, found: Sequence[changes.Change]) -> Section:
    """Show a line for each pair of runs that differ in a single property."""
    counts = changes.summary(validated)
    title = (
        f"{validated.name}: {counts['changes_signed']} of {len(found)} changes have the right sign,"
        f" {counts['changes_close']} within {changes.CLOSE * 100:.0f} points"
    )
    lines = (
        f"  {change.study}: {change.id} against {change.before}: measured {change.measured:+.1%},"
        f" predicted {change.predicted:+.1%}"
        for change in found
    )
    return section(title, *map(Sentence, lines))


def _coverage(answer: Validation) -> Iterator[Section]:
    """Show which share of rows lies within 90 % intervals that were fitted without the table, or
    with half of its rows: for each table, for all rows and for the mean of tables. Then show this
    share for each kind of work, with intervals that were fitted without this kind."""
    found, whole = answer.covered, answer.coverage or {}
    lines = [(row.name, str(row.count), asdict(row.table), asdict(row.rows)) for row in found]
    for key, name in (("rows", "all rows"), ("tables", _MEAN)):
        lines.append((name, "", whole["table_kept_out"][key], whole["rows_kept_out"][key]))
    head = ("90 % intervals", "rows", *(f"table out: {name}" for name in _HELD),
            *(f"half out: {name}" for name in _HELD))  # fmt: skip
    yield section(
        "Intervals of rows kept out: the whole table, or half of its rows",
        table([(name, rows, *_held(full), *_held(half)) for name, rows, full, half in lines], head),
    )
    yield section(
        "Intervals of a kind of work that no other row has",
        table(
            [(kind["kind"], str(kind["rows"]), *_held(kind)) for kind in whole["kinds"]],
            ("kind left out", "rows", *_HELD),
        ),
    )


def _held(held: Mapping[str, float]) -> Cells:
    width, score = f"x {held['width']:.2f}", f"{held['score']:.2f}"
    return f"{held['covered']:.1%}", width, score, f"{held['off']:.1%}"


def ablations(found: Sequence[Ablation]) -> Document:
    """Show for each mechanism the tables whose errors change if the simulator lacks it. The largest
    rise of MAPE comes first."""
    mechanisms = dict.fromkeys(ablation.mechanism for ablation in found)
    if not found:
        return document("no mechanism moves a row")
    parts = ((name, [row for row in found if row.mechanism == name]) for name in mechanisms)
    return document("", *(_ablation(name, tables) for name, tables in parts))


def _ablation(mechanism: str, tables: Sequence[Ablation]) -> Section:
    means = [mean_of([getattr(row, side) for row in tables]) for side in ("before", "after")]
    title = f"without {mechanism} ({len(tables)} tables"
    if "mape" in means[0]:
        title += f", their mean MAPE {means[0]['mape']:.1%} to {means[1]['mape']:.1%}"
    rows = [
        (row.table, f"{row.moved}/{row.rows}", *_sides(row)) for row in sorted(tables, key=_worth)
    ]
    head = ("table", "moved", "MAPE", "without", "bias", "without", "memory", "without")
    return section(f"{title})", table(rows, head))


def _sides(ablation: Ablation) -> Iterator[str]:
    for key in SHOWN:
        for side in (ablation.before, ablation.after):
            value = side[key]
            yield "-" if value is None else f"{value:{'+' * (key == 'bias')}.1%}"


def _worth(ablation: Ablation) -> float:
    return (ablation.before["mape"] or 0.0) - (ablation.after["mape"] or 0.0)


def parts(answer: PartValidation) -> Document:
    """Show a row for each class of kernels or collectives: the number of measurements, and
    predicted / measured - 1."""
    inputs = answer.inputs
    short = f"{answer.short:,} kernels of less than 20 us are left out" if answer.short else ""
    return document(
        f"{inputs.cluster or inputs.device}: {len(answer.runs):,} measured",
        table([_part(**errors) for errors in answer.errors], _HEAD),
        Sentence(short) if short else None,
    )


def _part(group: str, runs: int, median: float, p95: float, bias: float) -> Cells:
    return group, f"{runs:,}", f"{median:.1%}", f"{p95:.1%}", f"{bias:+.1%}"


def figures(answer: FigureValidation) -> Document:
    """Show the errors of each figure, the ratios of pairs, and all rows with their assumptions."""
    pairs = answer.pairs
    same = sum(pair.same_order for pair in pairs)
    return document(
        f"{len({run.id for run in answer.runs})} measured jobs",
        table(map(_error, answer.errors), ("", "measured", "MAPE", "bias", "worst", "of step")),
        section(f"Pairs: {same} of {len(pairs)} in the measured order",
                table(map(_pair, pairs), ("", "measured ratio", "predicted", "error")))
        if pairs
        else None,
        section("Rows", table(map(_run, answer.runs), ("", "", "measured", "predicted", "error"))),
        section("Assumed", *(Sentence(text) for text in _assumed(answer))),
    )  # fmt: skip


def _error(errors: dict[str, Any]) -> Cells:
    mape, bias, worst = f"{errors['mape']:.1%}", f"{errors['bias']:+.1%}", f"{errors['worst']:+.1%}"
    share = "" if errors["of_step"] is None else f"{errors['of_step']:.1%}"
    return errors["figure"], f"{errors['runs']}", mape, bias, worst, share


def _pair(pair: PairRun) -> Cells:
    order = "" if pair.same_order else ", other order"
    return (
        f"{pair.first} : {pair.second}",
        f"{pair.measured:.2f}",
        f"{pair.predicted:.2f}",
        f"{pair.error:+.1%}{order}",
    )


def _run(run: FigureRun) -> Cells:
    if run.predicted is None or run.error is None:
        return run.id, run.figure, human_seconds(run.measured), "-", run.reason
    predicted = human_seconds(run.predicted)
    return run.id, run.figure, human_seconds(run.measured), predicted, f"{run.error:+.1%}"


def _assumed(answer: FigureValidation) -> Iterator[str]:
    """Yield the assumptions about rows, each set of assumptions once."""
    pairs = dict.fromkeys((run.assumed, run.id) for run in answer.runs if run.assumed)
    for assumed, ids in grouped(pairs).items():
        rest = f" and {len(ids) - 1} more" if len(ids) > 1 else ""
        yield f"{ids[0]}{rest}: {'; '.join(assumed)}."


def measured(comparison: JobComparison) -> Document:
    """Show a row for each measured quantity of a job."""
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
