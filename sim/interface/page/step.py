"""The page of one training step."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from sim.analysis.explanation.what_if import MICROBATCH, WhatIf, what_if
from sim.config.errors import InputError
from sim.config.units import human_bytes, human_seconds
from sim.interface.page import inputs, memory, network
from sim.interface.page.figures import through
from sim.interface.page.page import html
from sim.interface.page.section import Figure, Section, Table
from sim.interface.page.timeline import chart
from sim.interface.plots.loads import busiest
from sim.interface.views import step as words
from sim.interface.views.model import describe as describe_model
from sim.interface.views.topology import describe as describe_cluster
from sim.results import likely
from sim.results.formatting import large, percent, rate, several, time_unit
from sim.results.memory_advice import memory_line
from sim.results.result import Result

_PATIENCE = 30.0  # s of simulation, above which no further questions are asked
_QUICK = 6.0  # s, below which the step is also played with other microbatches


def page(result: Result, files: Sequence[str]) -> str:
    """All that a result knows, and a few answers more (`sim.analysis.explanation.what_if`)."""
    columns, why = _what_if(result)
    return html(
        result.scenario,
        subtitle=f"One predicted training step on {several(result.ranks, 'GPU')}",
        figures=list(_figures(result)),
        warnings=result.remarks,
        sections=list(_sections(result, files, columns, why)),
        numbers=result.to_dict(),
        columns=asdict(columns) if columns else None,
    )


def _figures(result: Result) -> Iterator[Figure]:
    level = 100 * result.interval["level"]
    bounds = (result.step_time_low, result.step_time_high)
    within = likely.interval(bounds, result.interval["level"]).strip("()").partition(",")[0]
    each = f"{rate(result.tokens_per_second_per_gpu)} per GPU"
    used = result.memory_per_gpu["total"]
    fits = "fits" if result.fits else "does not fit"
    yield Figure(title="step time", key="step_time_expected",
                 shown=human_seconds(result.step_time_expected),
                 note=f"{within} with {level:.0f} %")  # fmt: skip
    yield Figure(title="simulated", key="step_time", shown=human_seconds(result.step_time))
    yield Figure(title="tokens/s", key="tokens_per_second",
                 shown=rate(result.tokens_per_second), note=each)  # fmt: skip
    if result.mfu > 0.0:
        yield Figure(title="MFU", key="mfu", shown=percent(result.mfu),
                     note=f"HFU {percent(result.hfu)}")  # fmt: skip
    yield Figure(title="bubble", key="bubble_fraction", shown=percent(result.bubble_fraction),
                 note="of the stages' time")  # fmt: skip
    yield Figure(title="memory of the fullest GPU", key="memory_per_gpu.total",
                 shown=human_bytes(used),
                 note=f"of {human_bytes(result.capacity)}: {fits}")  # fmt: skip
    yield Figure(title="parameters", key="parameters", shown=large(result.parameters))


def _sections(
    result: Result, files: Sequence[str], columns: WhatIf | None, why: str
) -> Iterator[Section]:
    along = through(result.timeline.end / time_unit(result.timeline.end)[0])
    yield Section(
        name="breakdown",
        title="Where the time goes",
        text=["Of the rank that ends last, by cause; the seconds add up to the step."],
        tables=list(_breakdown(result)),
    )
    yield Section(
        name="timeline",
        title="Timeline",
        text=["The blank parts of a row are its bubble. Memory below moves along."],
        charts=[chart(result.timeline, along, of=result.scenario)],
    )
    yield Section(
        name="memory",
        title="Memory over time",
        text=[memory_line(result)],
        charts=list(memory.charts(result, along)) if result.memory_curves else [],
        tables=[_memory(result)],
    )
    if result.setup is not None:
        text = (
            "Cables have the colour of the busiest link of their kind: the share of the step for "
            "which its bytes take all of its bandwidth."
        )
        topology, loads = result.setup.machine.topology, result.links
        yield network.section(topology, busiest(loads), network.table(loads), text)
    yield _evidence(result)
    yield _questions(columns, why)
    yield inputs.section(result.inputs, files, list(_given(result)))


def _breakdown(result: Result) -> Iterator[Table]:
    causes = sorted((key for key, s in result.breakdown.items() if s > 0.0),
                    key=lambda key: -result.breakdown[key])  # fmt: skip
    yield Table(
        caption="Seconds by cause",
        rows=list(words.time_rows(result)),
        shares=words.relative(result.breakdown),
        keys=[*(f"breakdown.{cause}" for cause in causes), "step_time"],
    )
    if len(result.stages) > 1:
        yield Table(caption="Stages", rows=words.stage_rows(result), headed=True)


def _memory(result: Result) -> Table:
    parts = words.memory_parts(result)
    return Table(
        caption="Parts at the peak",
        rows=list(words.memory_rows(result)),
        shares=words.relative(parts),
        keys=[f"memory_per_gpu.{part}" for part in parts],
    )


def _evidence(result: Result) -> Section:
    law = result.interval
    spread = f"{100 * math.expm1(law['scale']):.1f} %"
    apart = f"{100 * math.expm1(law['apart']):.1f} %"
    known: list[tuple[str, str]] = [
        ("simulated", human_seconds(result.step_time)),
        ("expected", human_seconds(result.step_time_expected)),
        (f"low, {100 * law['level']:.0f} %", human_seconds(result.step_time_low)),
        (f"high, {100 * law['level']:.0f} %", human_seconds(result.step_time_high)),
        ("rests on", law["basis"]),
        ("standard deviation of such runs", spread),
        ("of two layouts' ratio", apart),
    ]
    keys = ["step_time", "step_time_expected", "step_time_low", "step_time_high", "interval.basis"]
    return Section(
        name="evidence",
        title="How sure",
        text=[
            f"A measured step is expected to take {human_seconds(result.step_time_expected)} "
            f"{likely.bounds(result)}, because {likely.why(result)}. Everything else on this page "
            "is of the simulated step.",
        ],
        tables=[Table(caption="Interval and evidence", rows=known, keys=keys)],
    )


def _what_if(result: Result) -> tuple[WhatIf | None, str]:
    """Answers beforehand, or why there are none."""
    if result.setup is None:
        return None, "This result does not say what was simulated."
    if result.wall_seconds > _PATIENCE:
        took = human_seconds(result.wall_seconds)
        return None, f"The step took {took} to simulate; `sim explain` answers what this would."
    try:
        return what_if(result.setup, microbatches=result.wall_seconds < _QUICK), ""
    except InputError as error:
        return None, f"No columns for this step: {error}"


def _questions(columns: WhatIf | None, why: str) -> Section:
    text = why or (
        "Moves along a grid of replays of this step, made beforehand; everything that waits for "
        "what changes moves with it. At other speeds memory, and the choices of kernels and "
        "algorithms, stay."
    )
    if columns and columns.knobs and columns.knobs[0].name == MICROBATCH:
        text += " A microbatch of another size has its own."
    return Section(
        name="what-if",
        title="What if",
        text=[text],
        sliders=columns.knobs if columns else (),
    )


def _given(result: Result) -> Iterator[str]:
    setup = result.setup
    if setup is not None and setup.job is not None:
        yield describe_model(setup.job.model, result.inputs.model)
    else:
        yield inputs.told(result.inputs)
    if setup is not None:
        yield describe_cluster(setup.machine.topology)
