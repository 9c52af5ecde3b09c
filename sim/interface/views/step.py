"""A result as a page that a person likes to read: as text, and as HTML for notebooks."""

from collections.abc import Iterator, Mapping
from html import escape
from itertools import groupby
from typing import Any

from sim.config.units import human_bytes, human_seconds
from sim.results import likely
from sim.results.formatting import (
    apportioned,
    bar,
    count,
    large,
    money,
    percent,
    rate,
    several,
    time_unit,
)
from sim.results.memory_advice import memory_line
from sim.results.result import Result
from sim.results.tables import Cells, aligned, html_table

_MOST_STAGES = 24


def text(result: Result) -> str:
    """The result in plain text: rates, where the time goes, stages, memory, warnings."""
    sections = [
        f"{result.scenario} on {several(result.ranks, 'GPU')}",
        aligned(headline(result)),
        "Where the time goes (the critical rank's step)",
        aligned(time_rows(result, bars=True)),
    ]
    if len(result.stages) > 1:
        sections += ["Stages", aligned(stage_rows(result))]
    sections += [memory_line(result), aligned(memory_rows(result, bars=True))]
    blocks = ["\n".join(pair) for pair in zip(sections[::2], sections[1::2], strict=True)]
    blocks.append(
        "\n".join([effort(result), *(f"warning: {warning}" for warning in result.warnings)])
    )
    return "\n\n".join(blocks)


def in_a_line(result: Result) -> str:
    """The job, its step, its use of the GPUs and their memory."""
    return (
        f"{result.scenario} on {several(result.ranks, 'GPU')}: "
        f"{human_seconds(result.step_time_expected)} a step, {result.mfu:.1%} MFU as simulated, "
        f"{human_bytes(result.memory_per_gpu['total'])} of a GPU's {human_bytes(result.capacity)}"
    )


def html(result: Result) -> str:
    """The same page for a notebook."""
    parts = [
        f"<h4>{escape(result.scenario)} on {several(result.ranks, 'GPU')}</h4>",
        html_table(headline(result)),
        "<b>Where the time goes</b> (the critical rank's step)",
        html_table(time_rows(result), shares=relative(result.breakdown)),
    ]
    if len(result.stages) > 1:
        parts += ["<b>Stages</b>", html_table(stage_rows(result))]
    colour = "inherit" if result.fits else "#d55e00"
    parts.append(f'<b style="color:{colour}">{escape(memory_line(result))}</b>')
    parts.append(html_table(memory_rows(result), shares=relative(memory_parts(result))))
    parts += [f"<div>⚠ {escape(warning)}</div>" for warning in result.warnings]
    parts.append(f"<small>{escape(effort(result))}</small>")
    return '<div style="line-height:1.4">' + "\n".join(parts) + "</div>"


def headline(result: Result) -> list[Cells]:
    """The numbers that a reader came for: the expected step before the simulated one."""
    used = (
        f"simulated, all of attention counted; HFU {percent(result.hfu)} of the FLOPs that run, "
        f"masked ones left out; {count(result.model_tflops_per_gpu)} model TFLOP/s per GPU"
    )
    return [
        ("step time", human_seconds(result.step_time_expected), likely.bounds(result)),
        ("simulated", human_seconds(result.step_time), likely.why(result)),
        ("tokens/s", rate(result.tokens_per_second), _each(result)),
        *([("MFU", percent(result.mfu), used)] * (result.mfu > 0)),
        ("bubble", percent(result.bubble_fraction), "of the stages' time"),
        ("model", large(result.parameters) if result.parameters else "unknown", _active(result)),
        ("step in", result.inputs.precision, result.inputs.step),
        *_cost(result),
        *_dropped(result),
        *_gains(result),
        *_staleness(result),
    ]


def _each(result: Result) -> str:
    """Tokens of each GPU; a recorded script that looks nothing up in an embedding shows none."""
    samples = f"{rate(result.samples_per_second)} samples/s"
    if not result.tokens_per_second:
        return f"the script looks nothing up in an embedding; {samples}"
    return f"simulated, {count(result.tokens_per_second_per_gpu)} per GPU, {samples}"


def _active(result: Result) -> str:
    fewer = f", {large(result.active_parameters)} a token"
    return "parameters" + fewer * (result.active_parameters != result.parameters)


def _cost(result: Result) -> Iterator[Cells]:
    """Rent, where there is a price."""
    if result.dollars_per_million_tokens is not None:
        known = result.dollars_per_million_tokens
        sure = likely.likely(result)
        bounds = likely.interval((sure.low * known, sure.high * known), sure.level, money)
        note = f"{bounds} a million tokens at {result.inputs.price}; simulated {money(known)} $"
        yield "cost", f"{money(sure.expected * known)} $", note


def _dropped(result: Result) -> Iterator[Cells]:
    """The share of tokens that experts had no room for."""
    if result.dropped:
        yield "dropped", percent(result.dropped), "of what tokens send to experts"


def _gains(result: Result) -> Iterator[Cells]:
    """The gain of a schedule that was searched over fixed schedules."""
    gains = [f"{percent(gain)} over {name}" for name, gain in result.gains.items()]
    if gains:
        yield "schedule", gains[0], ", ".join(gains[1:])


def _staleness(result: Result) -> Iterator[Cells]:
    """How late the gradients of the first and the last stage are."""
    if result.staleness:
        first, last = result.staleness[0], result.staleness[-1]
        shown = str(first) if first == last else f"{first} to {last}"
        yield "staleness", shown, "updates that gradients are late, first to last stage"


# --- Rows ----------------------------------------------------------------------------------------


def time_rows(result: Result, *, bars: bool = False) -> Iterator[Cells]:
    """Causes with their seconds and shares, largest first; the printed figures add up."""
    causes, step = _sorted(result.breakdown), result.step_time
    scale, unit = time_unit(step)
    times = apportioned([seconds / scale for seconds in causes.values()], 3)
    shares = apportioned([100 * seconds / step for seconds in causes.values()], 1)
    longest = max(causes.values(), default=1.0)
    for (cause, seconds), amount, share in zip(causes.items(), times, shares, strict=True):
        row = (cause, f"{amount:.3f} {unit}", f"{share:.1f} %")
        yield (*row, bar(seconds / longest)) if bars else row
    yield "total", f"{step / scale:.3f} {unit}", "100.0 %"


def stage_rows(result: Result) -> list[Cells]:
    """A row a stage; neighbours that print alike share one."""
    with_memory = any("memory" in stage for stage in result.stages)
    title = ("stage", "layers", "compute", "bubble", *(["memory"] if with_memory else []))
    rows = [_stage_row(stage, result.step_time) for stage in result.stages]
    merged: list[Cells] = [title]
    for figures, group in groupby(enumerate(rows), key=lambda numbered: numbered[1]):
        numbers = [number for number, _ in group]
        name = f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
        merged.append((name, *figures))
    if len(merged) > _MOST_STAGES:
        half = _MOST_STAGES // 2
        hidden = len(merged) - 2 * half
        merged[half:-half] = [(f"... {hidden} more",)]
    return merged


def _stage_row(stage: Mapping[str, Any], step: float) -> Cells:
    row = (
        str(stage["layers"]),
        human_seconds(stage["compute"]),
        f"{human_seconds(stage['bubble'])} ({percent(stage['bubble'] / step)})",
    )
    return (*row, human_bytes(stage["memory"])) if "memory" in stage else row


def memory_rows(result: Result, *, bars: bool = False) -> Iterator[Cells]:
    parts = memory_parts(result)
    longest = max([*parts.values(), 1.0])
    for name, size in parts.items():
        yield (name, human_bytes(size), bar(size / longest)) if bars else (name, human_bytes(size))


def memory_parts(result: Result) -> dict[str, float]:
    return _sorted({part: size for part, size in result.memory_per_gpu.items() if part != "total"})


def effort(result: Result) -> str:
    return (
        f"Simulated {several(result.ranks, 'rank')} as {several(result.roles, 'role')}, "
        f"{several(result.operations, 'operation')}, in {human_seconds(result.wall_seconds)}."
        f"{_sources(result.device_time)}"
    )


def _sources(shares: Mapping[str, float]) -> str:
    """The sources of kernel times, where a profile is among them."""
    if "profile" not in shares:
        return ""
    measured, modelled = percent(shares["profile"]), percent(shares.get("model", 0.0))
    return f"\nKernel times: {measured} from the profile, {modelled} from the model."


def _sorted(parts: Mapping[str, float]) -> dict[str, float]:
    """Largest first, without what is zero."""
    return {k: v for k, v in sorted(parts.items(), key=lambda item: -item[1]) if v > 0}


def relative(parts: Mapping[str, float]) -> list[float]:
    """Each part over the largest one, in the order of the rows."""
    values = list(_sorted(parts).values())
    return [value / values[0] for value in values]
