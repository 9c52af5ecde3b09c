"""The page of a training step."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from sim.analysis.explanation.explain import Explanation
from sim.analysis.explanation.what_if import MICROBATCH, WhatIf, what_if
from sim.config.errors import InputError
from sim.config.readable import human_bytes, human_seconds
from sim.interface.document import terminal
from sim.interface.document.nodes import (
    Figure,
    Figures,
    Node,
    Section,
    Sentence,
    Table,
    document,
    section,
    warnings,
)
from sim.interface.page import inputs, memory, network
from sim.interface.page.figures import through
from sim.interface.page.page import Sliders, html, paged
from sim.interface.page.timeline import chart
from sim.interface.plots.networks import busiest
from sim.interface.views import explanation
from sim.interface.views import model as model_view
from sim.interface.views import step as words
from sim.interface.views import topology as topology_view
from sim.results import likely
from sim.results.formatting import several, time_unit
from sim.results.result import Result

_PATIENCE = 30.0  # s of simulation; after a slower step no what-if answers are computed
_QUICK = 6.0  # s of simulation; a faster step is also played with other microbatches


def page(result: Result, files: Sequence[str], more: Sequence[Node] = ()) -> str:
    """Return the page of a result, with what-if answers (`sim.analysis.explanation.what_if`). The
    nodes `more` are below the key figures."""
    columns, why = _what_if(result)
    sections = _sections(result, files, columns, why)
    return html(
        document(result.scenario, headline(result), *warnings(result.remarks), *more, *sections),
        subtitle=f"One predicted training step on {several(result.ranks, 'GPU')}",
        numbers=result.to_dict(),
        columns=asdict(columns) if columns else None,
    )


def explained(answer: Explanation, files: Sequence[str]) -> str:
    """Return the page of an explained step: the step's page with the limits and the advice."""
    return page(answer.result, files, explanation.view(answer).nodes)


def headline(result: Result) -> Figures:
    """Return the key figures of the step, and the memory of the fullest GPU."""
    fits = {True: "fits", False: "does not fit", None: "unknown"}[result.fits]
    held = "unknown" if result.fits is None else human_bytes(result.memory_per_gpu["total"])
    room = f"of {human_bytes(result.capacity)}: {fits}"
    memory = Figure("memory of the fullest GPU", held, room, key="memory_per_gpu.total")
    return Figures((*words.figures(result).figures, memory))


def drawn(result: Result, *, whole: bool = True) -> Iterator[Section]:
    """Yield the drawings of a step: its timeline, its memory over time and its links. Only a
    `whole` page has the drawing of the cluster, since this takes longest."""
    along = through(result.timeline.end / time_unit(result.timeline.end)[0])
    yield paged(
        "Timeline",
        Sentence("The blank parts of a row are its bubble. The memory below moves along."),
        chart(result.timeline, along, of=result.scenario),
        name="timeline",
    )
    if result.memory_curves:
        yield paged("Memory over time", *memory.charts(result, along), name="memory-over-time")
    if result.setup is not None:
        text = (
            "Cables have the colour of the busiest link of their kind: the share of the step for "
            "which its bytes take all of its bandwidth."
        )
        topology, loads = result.setup.machine.topology, result.links
        shares = busiest(loads) if whole else None
        yield network.section(topology, shares, network.table(loads), text)


def _sections(
    result: Result, files: Sequence[str], columns: WhatIf | None, why: str
) -> Iterator[Section]:
    yield words.breakdown(result)
    if stages := words.stages(result):
        yield stages
    for part in drawn(result):
        yield part
        if part.name == "timeline":
            yield words.memory(result)
    yield _evidence(result)
    yield _questions(columns, why)
    yield inputs.shown([("", result.inputs)], files, list(_given(result)))


def _evidence(result: Result) -> Section:
    law = result.interval
    spread = f"{100 * math.expm1(law['scale']):.1f} %"
    apart = f"{100 * math.expm1(law['apart']):.1f} %"
    known = [
        ("simulated", human_seconds(result.step_time)),
        ("expected", human_seconds(result.step_time_expected)),
        (f"low, {100 * law['level']:.0f} %", human_seconds(result.step_time_low)),
        (f"high, {100 * law['level']:.0f} %", human_seconds(result.step_time_high)),
        ("rests on", law["basis"]),
        ("standard deviation of such runs", spread),
        ("standard deviation of two layouts' ratio", apart),
    ]
    keys = ["step_time", "step_time_expected", "step_time_low", "step_time_high", "interval.basis"]
    expected = (
        f"A measured step is expected to take {human_seconds(result.step_time_expected)} "
        f"{likely.bounds(result)}, because {likely.why(result.interval)}. All other numbers on "
        "this page are of the simulated step."
    )
    evidence = Table(caption="Interval and evidence", rows=known, keys=keys)
    return section("How sure", Sentence(expected), evidence, name="evidence")


def _what_if(result: Result) -> tuple[WhatIf | None, str]:
    """Return what-if answers for the sliders, or the reason why there are none."""
    if result.setup is None:
        return None, "This result does not say what was simulated."
    if result.wall_seconds > _PATIENCE:
        took = human_seconds(result.wall_seconds)
        return None, f"The step took {took} to simulate; `sim explain` answers these questions."
    try:
        plays = int(_PATIENCE / max(result.wall_seconds, 1e-3))
        quick = result.wall_seconds < _QUICK
        return what_if(result.setup, microbatches=quick, plays=plays), ""
    except InputError as error:
        return None, f"No what-if answers for this step: {error}"


def _questions(columns: WhatIf | None, why: str) -> Section:
    text = why or (
        "The sliders choose among replays of this step that were computed beforehand. A replay "
        "moves all operations that wait for a changed operation. It keeps the memory, and the "
        "choices of kernels and algorithms."
    )
    if columns and columns.knobs and columns.knobs[0].name == MICROBATCH:
        text += " Other sizes of microbatches have their own memory and choices."
    sliders = Sliders(columns.knobs) if columns and columns.knobs else None
    return paged("What if", Sentence(text), sliders, name="what-if")


def _given(result: Result) -> Iterator[str]:
    setup = result.setup
    if setup is not None and setup.job is not None:
        yield terminal.text(model_view.view(setup.job.model, result.inputs.model))
    if setup is not None:
        yield terminal.text(topology_view.view(setup.machine.topology))
