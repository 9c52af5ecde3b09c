"""`sim.explain`: what limits a step, and what would make it shorter."""

from dataclasses import asdict
from os import PathLike
from typing import Any, cast

from sim import kind, questions
from sim.analysis.explanation.advice import Advice, advised
from sim.analysis.explanation.changes import Change, changes
from sim.analysis.explanation.limits import Limits, Roof, limits, roofline
from sim.config.counting import part, whole
from sim.config.dataclass import dataclass
from sim.results.answer import Answer, Inputs
from sim.results.by_line import Line, Moment
from sim.results.result import Result
from sim.scenario.scenario import BaseScenario
from sim.scenario.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation(Answer):
    """What limits a step. `limits` are the resources that would shorten the step if they were
    faster. `kernels` are compared with the device's peaks, and `changes` of the plan are played. A
    recorded step has no plan. It has the `lines` of its script with the seconds of their kernels,
    and the memory that lines hold at the `fullest` moment. `advice` are changes of a script that
    were played, the largest saving first. The first row may make several changes together."""

    view = "sim.interface.views.explanation"
    picture = "sim.interface.plots.explanation"
    report = "sim.interface.page.step:explained"
    unwritten = ("result", "limits", "changes", "lines", "advice")
    derived = (
        "step_time", "limits=limited", "then", "changes=changed", "lines=timed", "advice=tried",
        "inputs",
    )  # fmt: skip
    frame_rows = "limited"
    frame_index = ("resource",)

    result: Result
    limits: Limits
    kernels: tuple[Roof, ...]
    changes: tuple[Change, ...]
    lines: tuple[Line, ...] = ()
    fullest: Moment | None = None
    advice: tuple[Advice, ...] | None = None

    @property
    def step_time(self) -> float:
        return self.result.step_time

    @property
    def inputs(self) -> Inputs:
        return self.result.inputs

    @property
    def fits(self) -> bool | None:
        return self.result.fits

    @property
    def limited(self) -> list[dict[str, Any]]:
        """Resources, the worst limit first."""
        return [asdict(limit) for limit in self.limits.limits]

    @property
    def then(self) -> list[dict[str, Any]]:
        """The limits that remain when the first resource is twice as fast."""
        return [asdict(limit) for limit in self.limits.then]

    @property
    def changed(self) -> list[dict[str, Any]]:
        """Changes of the plan that make the step shorter, the largest gain first."""
        return [
            {"choice": change.choice, "before": change.before, "after": change.after,
             "step_time": change.step_time, "memory": change.result.memory_per_gpu["total"]}
            for change in self.changes
        ]  # fmt: skip

    @property
    def timed(self) -> list[dict[str, Any]]:
        """Lines of a script, lines with the longest kernels first."""
        return [{"line": line.line, "seconds": line.seconds} for line in self.lines]

    @property
    def tried(self) -> list[dict[str, Any]]:
        """Changes of a script with their steps (s), the largest saving first. A row that makes
        several changes together lists them in `changes`, as other rows list their own."""
        return [
            {"line": row.line, "at": row.at, "change": row.change, "why": row.why,
             "step_time": row.step_time, "samples": row.samples, "gain": row.gain(self.step_time),
             "memory": row.memory,
             "changes": [{"at": own.at, "change": own.change} for own in row.changes]}
            for row in self.advice or ()
        ]  # fmt: skip


@whole("explaining the step")
def explain(
    scenario: str | PathLike[str] | BaseScenario, settings: Settings = (), *, advise: bool = False
) -> Explanation:
    """Explain the limits of a step. `scenario` may be a recording; `settings` then name its
    cluster, and `advise` tries changes of its script. Raises `InputError`."""
    loaded = kind.load(scenario, settings)
    questions.refuse_without("speeds", loaded)
    setup = kind.set_up(loaded)
    suggestions = questions.advice(setup) if advise else []
    with part(0.1):
        result = cast(Result, kind.answer(setup))
    with part(0.3 if setup.job or advise else 0.9):
        limited = limits(setup)
    shorter: tuple[Change, ...] = ()
    if setup.job is not None:  # a plan has choices that can be changed
        with part(0.6):
            shorter = tuple(changes(questions.planned(setup), result))
    tried: tuple[Advice, ...] | None = None
    if advise:
        with part(0.6):
            tried = tuple(advised(setup, result, suggestions))
    lines = questions.by_line(setup)
    return Explanation(
        result=result,
        limits=limited,
        kernels=tuple(roofline(setup)),
        changes=shorter,
        lines=lines.lines if lines else (),
        fullest=lines.fullest if lines else None,
        advice=tried,
    )
