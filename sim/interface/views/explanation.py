"""Show the limits of a step: resources, kernels, changes of the plan, lines of the script."""

from collections.abc import Mapping, Sequence
from typing import Any

from sim.analysis.explanation.advice import Advice
from sim.analysis.explanation.changes import Change
from sim.analysis.explanation.explain import Explanation
from sim.analysis.explanation.limits import Limits, Roof
from sim.analysis.explanation.moves import Move, Moves
from sim.config.readable import human_bytes, human_seconds
from sim.interface.document.nodes import Document, Section, Sentence, document, section, table
from sim.interface.views.step import waits_for_data
from sim.results.by_line import PARTS, Line, Moment
from sim.results.formatting import Cells, count, percent, several
from sim.results.result import Result

_MOST_KERNELS, _MOST_CHANGES, _MOST_LINES = 10, 4, 10
_LONGEST = 50  # characters of a kernel's name

_ADVICE = ("time", "step", "samples", "memory", "edit", "change")
_WIDTH = 100  # characters of a line of advice
_MOST = 40  # moves (other clusters, batches, layouts of a job) that are shown
_FITS = {True: "fits", False: "does not fit", None: "unknown"}


def view(answer: Explanation) -> Document:
    """Show tables of the limits, the kernels and the best changes, with their conclusions."""
    result, moment = answer.result, answer.fullest
    return document(
        f"{result.scenario} on {several(result.ranks, 'GPU')}: "
        f"{human_seconds(result.step_time_expected)} a step; the tables explain the simulated "
        f"{human_seconds(result.step_time)}",
        None if answer.advice is None else _advice(result, answer.advice),
        limited(answer.limits),
        _loading(result.loading) if result.loading else None,
        _kernels(result, answer.kernels),
        _lines(result, answer.lines) if answer.lines else _changes(result, answer.changes),
        _fullest(moment) if moment else None,
    )


def _advice(result: Result, advice: Sequence[Advice]) -> Section:
    if not advice:
        return section(
            "", Sentence("No change of the script that was tried makes the step shorter.")
        )
    rows = [
        (
            percent(-row.gain(result.step_time)),
            human_seconds(row.step_time),
            f"{row.samples:g}x",
            human_bytes(row.result.memory_per_gpu["total"]),
            row.at or "-",
            _told(row),
        )
        for row in advice
    ]
    title = "Changes of the script, each played, by the time that they save for the same samples"
    return section(title, table(rows, _ADVICE, width=_WIDTH), name="advice")


def _told(advice: Advice) -> str:
    """Return the change, its reason, and the line that costs the time if it is another line."""
    spent = f"; the time is spent at {advice.line}" if advice.line not in ("", advice.at) else ""
    return f"{advice.change}: {advice.why}{spent}" if advice.why else advice.change


def limited(limits: Limits) -> Section:
    """Show how much time each resource would save if it were faster."""
    step = limits.step_time
    rows = [
        (limit.resource, _gain(limit.halved, step), _gain(limit.free, step))
        for limit in limits.limits
    ]
    return section(
        "Change of the step time with a faster resource",
        table(rows, ("resource", "twice as fast", "at no cost")),
        Sentence(_next(limits)) if limits.then else None,
    )


def _loading(loading: Mapping[str, Any]) -> Section:
    figure = waits_for_data(loading)
    return section("", Sentence(f"A step {figure.title} {figure.shown}: {figure.note}."))


def _next(limits: Limits) -> str:
    first, second = limits.limits[0], limits.then[0]
    gain = _gain(second.halved, first.halved)
    return f"Limited by {first.resource}; at twice that speed, by {second.resource} ({gain})."


def _gain(time: float, step: float) -> str:
    return percent(time / step - 1.0)


def _kernels(result: Result, kernels: Sequence[Roof]) -> Section:
    head = ("kernel", "per step", "share", "calls", "rate", "of the peak", "bound by")
    rows = (_kernel(result, roof) for roof in kernels[:_MOST_KERNELS])
    return section("Kernels of a rank on the stage with the longest computation", table(rows, head))


def _kernel(result: Result, roof: Roof) -> Cells:
    unit = "TFLOP/s" if roof.bound == "compute" else "TB/s"
    return (
        _shortened(roof.name), human_seconds(roof.seconds),
        percent(roof.seconds / result.step_time), f"{roof.count:,}",
        f"{roof.reached / 1e12:.3g} {unit}", percent(roof.of_peak), roof.bound,
    )  # fmt: skip


def _shortened(name: str) -> str:
    """Shorten a kernel's name; inductor names a kernel after all operators fused in it."""
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 3]}..."


def _changes(result: Result, changes: Sequence[Change]) -> Section:
    if not changes:
        none = Sentence("No single change of the plan makes the step shorter.")
        return section("", none)
    best = {change.choice: change for change in reversed(changes)}
    rows = [
        (
            f"{change.choice}: {change.before} -> {change.after}",
            human_seconds(change.step_time),
            _gain(change.step_time, result.step_time),
            human_bytes(change.result.memory_per_gpu["total"]),
        )
        for change in sorted(best.values(), key=lambda change: change.step_time)[:_MOST_CHANGES]
    ]
    title = "Best change of each choice of the plan"
    return section(title, table(rows, ("change", "step", "", "memory")))


def _lines(result: Result, lines: Sequence[Line]) -> Section:
    parts = [part for part in PARTS if any(line.seconds[part] for line in lines)]
    rows = [
        (
            line.line,
            human_seconds(line.total),
            percent(line.total / result.step_time),
            *(human_seconds(line.seconds[part]) if line.seconds[part] else "-" for part in parts),
        )
        for line in lines[:_MOST_LINES]
    ]
    title = "Lines of the script by the seconds of their kernels, forward and back"
    return section(title, table(rows, ("line", "per step", "share", *parts)))


def _fullest(moment: Moment) -> Section:
    rows = [
        (line, human_bytes(size), percent(size / moment.allocated))
        for line, size in list(moment.lines.items())[:_MOST_LINES]
    ]
    title = (
        f"Memory is fullest {moment.when}: {human_bytes(moment.allocated)} are allocated, by line"
    )
    in_step = f"The recorded step itself has at most {human_bytes(moment.in_step)} allocated."
    less = moment.in_step < moment.allocated
    return section(title, table(rows), Sentence(in_step) if less else None)


def moves(answer: Moves) -> Document:
    """Show the best moves of a job to other clusters, batches or layouts, and the refused moves."""
    best = answer.recommended or (answer.moves[0] if answer.moves else None)
    laid_out = any(move.result.inputs.plan.keys() - {"dp"} for move in answer.moves)
    layout = ["layout"] if laid_out else []
    head = ("moved to", *layout, "samples", "step", "samples/s", "per GPU", "memory", "")
    can = len(answer.moves) + len(answer.slower)
    title = f"{answer.title}: {can} of {can + len(answer.refused)} moves"
    return document(
        f"{title} can be played; {_chosen(answer)}: {best.moved if best else 'none'}",
        table((_row(move, laid_out) for move in answer.moves[:_MOST]), head),
        _more(len(answer.moves) - _MOST),
        _reasons("Moves that are slower, not played", answer.slower),
        _reasons("Moves that cannot be played", answer.refused),
        line=f"{title} can be played",
    )


def _chosen(answer: Moves) -> str:
    """Say why the move in the title was chosen."""
    alike = [move for move in answer.moves if move.alike(answer.moves[0])]
    if answer.recommended is None or len(alike) < 2:
        return "the most samples a second and GPU"
    seeds = len(alike[0].times)
    return f"the simplest of {len(alike)} that {seeds} seeds cannot tell apart"


def _more(left: int) -> Section | None:
    if left <= 0:
        return None
    return section("", Sentence(f"{several(left, 'move')} more; --report moves.csv has all"))


def _row(move: Move, laid_out: bool) -> Cells:
    layout = ", ".join(f"{key} {value}" for key, value in move.result.inputs.plan.items())
    rate = move.samples_per_second
    return (
        move.moved,
        *([layout] if laid_out else []),
        f"{move.samples:,.0f}" if move.samples else "unknown",
        human_seconds(move.step_time) + ("" if move.within is None else f" +- {move.within:.1%}"),
        *(["unknown"] * 2 if rate is None else [count(rate), count(move.rate)]),
        human_bytes(move.memory),
        _FITS[move.result.fits],
    )


def _reasons(title: str, of: Sequence[tuple[str, str]]) -> Section | None:
    return section(title, table(of)) if of else None
