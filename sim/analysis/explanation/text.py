"""What limits a step, as text: resources, kernels, changes of the plan."""

from collections.abc import Sequence

from sim.analysis.explanation.changes import Change
from sim.analysis.explanation.explain import Explanation
from sim.analysis.explanation.kernels import Roof
from sim.analysis.explanation.limits import Limits
from sim.config.units import human_bytes, human_seconds
from sim.results.by_line import PARTS, Line, Moment
from sim.results.formatting import percent, several
from sim.results.result import Result
from sim.results.tables import Cells, aligned, preformatted

_MOST_KERNELS, _MOST_CHANGES, _MOST_LINES = 10, 3, 10
_LONGEST = 50  # characters of a kernel's name


def text(answer: Explanation) -> str:
    """Tables, each with the sentence that it amounts to."""
    result, moment = answer.result, answer.fullest
    last = [] if answer.lines else [_changes(result, answer.changes)]
    last += [_lines(result, answer.lines)] if answer.lines else []
    last += [_fullest(moment)] if moment else []
    return "\n\n".join(
        [
            f"{result.scenario} on {several(result.ranks, 'GPU')}: "
            f"{human_seconds(result.step_time)} a step",
            _limits(answer.limits),
            _kernels(result, answer.kernels),
            *last,
        ]
    )


def html(answer: Explanation) -> str:
    """The same page for a notebook."""
    return preformatted(text(answer))


def _limits(limits: Limits) -> str:
    step = limits.step_time
    rows: list[Cells] = [("resource", "twice as fast", "at no cost")]
    rows += [
        (one.resource, _gain(one.halved, step), _gain(one.free, step)) for one in limits.limits
    ]
    lines = ["How much shorter the step would be if a resource were", aligned(rows)]
    if limits.then:
        first, second = limits.limits[0], limits.then[0]
        gain = _gain(second.halved, first.halved)
        lines.append(
            f"Limited by {first.resource}; with these twice as fast, next by {second.resource} "
            f"({gain})."
        )
    return "\n".join(lines)


def _gain(time: float, step: float) -> str:
    return percent(time / step - 1.0)


def _kernels(result: Result, kernels: Sequence[Roof]) -> str:
    rows: list[Cells] = [
        ("kernel", "a step", "of it", "often", "reached", "of the peak", "bound by")
    ]
    for one in kernels[:_MOST_KERNELS]:
        unit = "TFLOP/s" if one.bound == "compute" else "TB/s"
        rows.append(
            (
                _shortened(one.name),
                human_seconds(one.seconds),
                percent(one.seconds / result.step_time),
                f"{one.count:,}",
                f"{one.reached / 1e12:.3g} {unit}",
                percent(one.of_peak),
                one.bound,
            )
        )
    return "\n".join(["Kernels of a rank of the stage that computes longest", aligned(rows)])


def _shortened(name: str) -> str:
    """A kernel of inductor is named after all that is fused in it."""
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 3]}..."


def _changes(result: Result, changes: Sequence[Change]) -> str:
    if not changes:
        return "No single change of the plan makes the step shorter."
    rows = [
        (
            f"{one.choice}: {one.before} -> {one.after}",
            human_seconds(one.step_time),
            _gain(one.step_time, result.step_time),
            human_bytes(one.result.memory_per_gpu["total"]),
        )
        for one in changes[:_MOST_CHANGES]
    ]
    head = ("change", "step", "", "memory")
    return "\n".join(["The best changes of one choice of the plan", aligned([head, *rows])])


def _lines(result: Result, lines: Sequence[Line]) -> str:
    parts = [part for part in PARTS if any(one.seconds[part] for one in lines)]
    rows: list[Cells] = [("line", "a step", "of it", *parts)]
    rows += [
        (
            one.line,
            human_seconds(one.total),
            percent(one.total / result.step_time),
            *(human_seconds(one.seconds[part]) if one.seconds[part] else "-" for part in parts),
        )
        for one in lines[:_MOST_LINES]
    ]
    head = "Lines of the script by the seconds of their kernels, forward and back"
    return "\n".join([head, aligned(rows)])


def _fullest(moment: Moment) -> str:
    rows: list[Cells] = [
        (line, human_bytes(size), percent(size / moment.allocated))
        for line, size in list(moment.lines.items())[:_MOST_LINES]
    ]
    head = (
        f"Memory is fullest {moment.when}: {human_bytes(moment.allocated)} are allocated, by line"
    )
    lines = [head, aligned(rows)]
    if moment.in_step < moment.allocated:
        lines.append(
            f"The recorded step itself has at most {human_bytes(moment.in_step)} allocated."
        )
    return "\n".join(lines)
