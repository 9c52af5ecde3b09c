"""The questions of the page: each takes a state, and returns plain data for the browser."""

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import asdict, replace
from functools import cache, lru_cache
from importlib import import_module
from itertools import islice
from types import MappingProxyType, ModuleType
from typing import Any, TypeVar

from sim import kind, questions
from sim.analysis.comparison.compare import compare as compared
from sim.analysis.explanation.limits import limits as limits_of
from sim.analysis.reliability.goodput import goodput
from sim.analysis.search.plan import plan as planned
from sim.config import limit, reads
from sim.config.errors import InputError
from sim.config.readable import human_seconds
from sim.interface.document import answers
from sim.interface.document.nodes import Document, Figure, Figures, Picture, Section
from sim.interface.frameworks.jobs import FRAMEWORKS, emitted, foreign, plan_of, stack_of, start
from sim.interface.frameworks.names import NAMES
from sim.interface.page import report
from sim.interface.page.page import charts as charts_of
from sim.interface.page.page import embedded, fragment, places
from sim.interface.serve.controls import SLIDERS, Control, Group, groups, readable, refused, tried
from sim.interface.serve.proposals import of_remedies, proposals
from sim.interface.serve.states import Base, Bases, State, model_of, toml
from sim.interface.views.explanation import limited
from sim.parallel.plan import Plan
from sim.results.answer import JobAnswer
from sim.scenario.scenario import BaseScenario
from sim.scenario.settings import Settings
from sim.scenario.setup import load_model, load_stack, load_topology

PATIENCE = 60.0  # s; longer simulations are refused here, and left to `sim run`
LONGEST = 10 * PATIENCE  # s that a longer question may take
_MOST_MENDS, _MOST_TRIED = 4, 16  # offered proposals, proposals that are tried
_KEPT = 16  # answers that are kept, the newest

Data = dict[str, Any]
_Answer = TypeVar("_Answer")


@contextmanager
def without_garbage() -> Iterator[None]:
    """Switch off Python's garbage collector within the block, as it takes half of the time of a
    large answer."""
    usual = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if usual:
            gc.enable()


def _within(seconds: float, ask: Callable[..., _Answer], *told: Any) -> _Answer:
    """Ask a question that may take `seconds`; the limit holds for this question alone."""
    context = copy_context()
    context.run(limit.allow, seconds)
    return context.run(ask, *told)


def _played(state: State) -> JobAnswer:
    return _within(PATIENCE, lambda: kind.answer(kind.set_up(state.scenario())))


def _asked(base: Base) -> list[str]:
    """Return the longer questions (`_ASKS`) that the scenario with which a page begins can answer.
    Raises `InputError`."""
    scenario = State(base).scenario()
    return [name for name, has in _ASKS.items() if has(scenario)]


def _stops(base: Base) -> dict[str, tuple[str, ...]]:
    """Return the values that each slider of a base offers, by key. Raises `InputError`."""
    controls = [control for group in groups(State(base).scenario()) for control in group.controls]
    return {control.key: control.choices for control in controls if control.form in SLIDERS}


class Questions:
    """The page's questions about its states; the last answers are kept."""

    def __init__(self) -> None:
        self.played = lru_cache(_KEPT)(_played)  # the answer of a state; raises `InputError`
        self._asked, self._stops = cache(_asked), cache(_stops)

    def warm(self, bases: Bases) -> None:
        """Ask the page's first questions beforehand, so no question of a user waits for imports."""
        for name in ("answer", "charts"):
            self.ask(bases, name, {})
        gc.freeze()  # the garbage collector skips all objects of this moment

    def ask(self, bases: Bases, name: str, asked: Data) -> Data:
        """Return the answer to a question of `QUICK` or `SLOW`, or its fault. Only files that
        `bases` allows are read."""
        try:
            with reads.only(bases.places), without_garbage():
                if name in SLOW:
                    given = asked.get("own")
                    pairs = given.items() if isinstance(given, dict) else ()
                    settings = [f"{key}={text}" for key, text in pairs]
                    return _within(LONGEST, SLOW[name], bases.state(asked).document, settings)
                return QUICK[name](self, bases, asked)
        except InputError as error:
            return {"fault": str(error)}

    def answer(self, state: State, last: str = "") -> Data:
        """Return key figures, the document and the controls. An impossible state has its fault and
        proposals instead of an answer. `last` is the setting that was changed last."""
        known: Data = {"command": state.command}
        try:
            scenario = state.scenario()
            known["groups"] = [asdict(group) for group in self.groups(state, scenario)]
            known["asks"] = self._asked(state.base)
            answer = self.played(state)
        except InputError as error:
            shown = self.groups(state, *_read(state))
            known["groups"] = [asdict(group) for group in shown]
            controls = [control for group in shown for control in group.controls]
            tried = islice(proposals(error, dict(state.settings), controls, last), _MOST_TRIED)
            taken = (
                proposal for proposal in tried if _runs(state.with_settings(proposal.settings))
            )
            offered = [asdict(proposal) for proposal in islice(taken, _MOST_MENDS)]
            return known | {"fault": str(error), "proposals": offered}
        seen = answers.document(answer)
        figures = _page(answer).headline(answer)
        rest = [node for node in seen.nodes if not isinstance(node, Figures | Picture)]
        mends = of_remedies(answer.get("remedies") or ())
        return known | {
            "title": seen.title,
            "says": answers.line(answer),
            "figures": [_figure(figure, answer) for figure in figures.figures],
            "html": fragment(rest),
            "misfit": answer.misfit,
            "proposals": [asdict(proposal) for proposal in mends],
        }

    def groups(
        self, state: State, scenario: BaseScenario, bad: Mapping[str, str] = MappingProxyType({})
    ) -> list[Group]:
        """Return the controls of a state. `scenario` is the state without its `bad` settings, which
        are shown as refused. Sliders keep the values of the state's base, so that no handle
        shifts when a setting changes."""
        stops = self._stops(state.base)

        def shown(control: Control) -> Control:
            control = replace(control, choices=stops.get(control.key, control.choices))
            return refused(control, bad[control.key]) if control.key in bad else control

        return [
            replace(group, controls=tuple(map(shown, group.controls))) for group in groups(scenario)
        ]

    def charts(self, state: State) -> Data:
        """Return the drawings of a state's answer, for Bokeh to embed."""
        answer = self.played(state)
        sections: list[Section] = list(_page(answer).drawn(answer, whole=False))
        charts = list(charts_of(Document("", (*sections,))))
        return {"html": fragment(sections, places(charts)), **embedded(charts)}

    def compared(self, states: Mapping[str, State]) -> Data:
        """Compare states side by side, against the first."""
        answer = compared({name: self.played(state) for name, state in states.items()})
        seen = answers.document(answer)
        return {"html": fragment(node for node in seen.nodes if not isinstance(node, Picture))}

    def exported(self, state: State, form: str) -> Data:
        """Return the `name` and `text` of a file in the form "toml", "py", "html" or of a
        framework. For a framework, `notes` has the values that its file does not express. Raises
        `InputError`."""
        if form == "toml":
            return {"name": "scenario.toml", "text": state.toml}
        if form == "py":
            return {"name": "question.py", "text": state.python}
        answer = self.played(state)
        if form == "html":
            return {"name": "report.html", "text": report.html(answer)}
        setup = questions.planned(kind.set_up(state.scenario()))
        job = setup.job
        cluster = setup.machine.topology
        text, unsaid = emitted(form, job.model, job.plan, setup.model, cluster, job.stack)
        notes = [f"not passed to {form}: {value}" for value in unsaid]
        notes.append(start(form, job.plan, cluster))
        if (stack_name := stack_of(form)) and (other := foreign(form, job.stack)):
            theirs = self.played(state.with_settings({"stack": stack_name}))
            times = [human_seconds(each.get("step_time")) for each in (answer, theirs)]
            notes.insert(0, f"{other}: {times[0]} a step here, {times[1]} there")
        return {"name": f"{form}{FRAMEWORKS[form].ending}", "text": f"{text}\n", "notes": notes}


FORMS = ("toml", "py", "html", *NAMES)


def _exported(questions: Questions, bases: Bases, asked: Data) -> Data:
    with reads.recorded():
        return questions.exported(bases.state(asked), asked["form"])


QUICK: Mapping[str, Callable[[Questions, Bases, Data], Data]] = {
    "answer": lambda own, bases, asked: own.answer(bases.state(asked), str(asked.get("last", ""))),
    "charts": lambda own, bases, asked: own.charts(bases.state(asked)),
    "compare": lambda own, bases, asked: own.compared(bases.states(asked)),
    "model": lambda own, bases, asked: {"setting": model_of(str(asked.get("text", "")))},
    "export": _exported,
}


def _read(state: State) -> tuple[BaseScenario, dict[str, str]]:
    """Return the scenario of a state without the settings that make it unreadable, and these
    settings. Raises `InputError` if the state's base cannot be read."""
    if (scenario := _readable(state)) is not None:
        return scenario, {}
    kept, bad = State(state.base), dict[str, str]()
    scenario = kept.scenario()
    for key, text in state.settings:
        more = kept.with_settings({key: text})
        if (found := _readable(more)) is None:
            bad[key] = text
        else:
            kept, scenario = more, found
    return scenario, bad


def _readable(state: State) -> BaseScenario | None:
    scenario = tried(state.scenario)
    return scenario if scenario and readable(scenario) else None


def _runs(state: State) -> bool:
    return tried(lambda: kind.set_up(state.scenario(), brief=True)) is not None


def _figure(figure: Figure, answer: JobAnswer) -> Data:
    """Return a key figure, with its number if the answer has it."""
    value: Any = answer
    for part in figure.key.split(".") if figure.key else ():
        value = value.get(part) if isinstance(value, Mapping) else getattr(value, part, None)
    number = value if figure.key and isinstance(value, int | float) else None
    room = answer.get("capacity") if figure.key == "memory_per_gpu.total" else None
    return {"title": figure.title, "shown": figure.shown, "note": figure.note, "key": figure.key,
            "value": number, "share": number / room if number and room else None}  # fmt: skip


def _paced(scenario: BaseScenario) -> bool:
    try:
        questions.refuse_without("pace", scenario)
    except InputError:
        return False
    return True


# The longer questions below that not every scenario answers, and whether a scenario answers them.
_ASKS: Mapping[str, Callable[[BaseScenario], bool]] = {
    "layouts": lambda scenario: kind.set_up(scenario, brief=True).job is not None,
    "failures": _paced,
}


def _page(answer: JobAnswer) -> ModuleType:
    """Return the module of an answer's page."""
    return import_module(answer.report)


# --- Questions that take longer -------------------------------------------------------------------


def limiting(document: Data, extra: Settings) -> Data:
    """Return the limits of a step."""
    setup = kind.set_up(kind.described(document))
    return {"html": fragment([limited(limits_of(setup))])}


def failing(document: Data, extra: Settings) -> Data:
    """Simulate a month with checkpoints and failures; the `extra` settings concern the recovery."""
    answer = goodput(kind.described(document), settings=extra)
    seen = answers.document(answer)
    nodes = [node for node in seen.nodes if not isinstance(node, Picture)]
    return {"html": fragment([Section(seen.title, tuple(nodes), "failures")])}


def searching(document: Data, extra: Settings) -> Data:
    """Search for the best layouts of a state's job. Each has the settings that change the plan to
    it."""
    scenario = kind.described(document)
    setup = questions.planned(kind.set_up(scenario))
    given: Any = scenario
    found = planned(
        load_model(scenario),
        load_topology(scenario),
        global_batch=setup.job.plan.global_batch,
        gpus=setup.machine.topology.gpus,
        stack=load_stack(scenario, scenario.stack),
        precision=setup.job.plan.precision,
    )
    rows = [
        {
            "layout": str(found.scenario(layout).name),
            "step": layout.step_time,
            "memory": layout.memory,
            "settings": changes(given.plan, layout.plan),
        }
        for layout in found.best
    ]
    now = kind.answer(setup)
    return {"rows": rows, "now": now.get("step_time"), "stopped": found.stopped,
            "evaluated": found.evaluated}  # fmt: skip


def changes(base: Plan, other: Plan) -> dict[str, str]:
    """Return the settings that change the plan `base` into `other`. Where settings cannot remove a
    key, the whole plan is a single setting."""
    before, after, usual = plan_of(base), plan_of(other), Plan(global_batch=1)
    if base.dp is None:
        after.pop("dp", None)
    keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    given = {key: after.get(key, getattr(usual, key)) for key in keys}
    if any(value is None for value in given.values()):
        return {"plan": toml(after)}
    return {f"plan.{key}": toml(value) for key, value in given.items()}


SLOW: Mapping[str, Callable[[Data, Settings], Data]] = {
    "limits": limiting,
    "failures": failing,
    "layouts": searching,
}
