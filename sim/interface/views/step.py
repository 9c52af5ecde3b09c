"""Show the result of a step: key figures, the time by cause, stages, memory."""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from sim.config.readable import human_bytes, human_seconds
from sim.interface.document.nodes import (
    Document,
    Figure,
    Figures,
    Section,
    Sentence,
    Table,
    document,
    section,
    table,
    warnings,
)
from sim.results import likely
from sim.results.formatting import (
    Cells,
    apportioned,
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

_MOST_STAGES = 24  # the most rows in the table of stages


def view(result: Result) -> Document:
    """Show rates, the time by cause, stages, memory and warnings."""
    job = f"{result.scenario} on {several(result.ranks, 'GPU')}"
    return document(
        job,
        figures(result),
        breakdown(result),
        stages(result),
        memory(result),
        Sentence(_effort(result), "aside"),
        *warnings(result.warnings),
        line=f"{job}: {human_seconds(result.step_time_expected)} a step, "
        f"{result.mfu:.1%} MFU as simulated, {human_bytes(result.memory_per_gpu['total'])} "
        f"of a GPU's {human_bytes(result.capacity)}",
    )


def figures(result: Result) -> Figures:
    """Return the key figures, with the expected step before the simulated step."""
    return Figures(tuple(_figures(result)))


def _figures(result: Result) -> Iterator[Figure]:
    expected, why = human_seconds(result.step_time_expected), likely.why(result.interval)
    yield Figure("step time", expected, likely.bounds(result), key="step_time_expected")
    yield Figure("simulated", human_seconds(result.step_time), why, key="step_time")
    yield _rate(result)
    if result.mfu > 0:
        main, *others = result.mfu_of_peaks.items()
        peak = "".join(f", {percent(share)} of the {name} peak" for name, share in others)
        attention = "; counts full, unmasked attention (PaLM)" * (result.inputs.tokens != 1)
        used = (
            f"of the {main[0]} peak{peak}, simulated{attention}; "
            f"HFU {percent(result.hfu)} counts executed FLOPs only, recomputation included; "
            f"{count(result.model_tflops_per_gpu)} model TFLOP/s per GPU"
        )
        yield Figure("MFU", percent(result.mfu), used, key="mfu")
    bubble = percent(result.bubble_fraction)
    yield Figure("bubble", bubble, "of the stages' time", key="bubble_fraction")
    model = large(result.parameters) if result.parameters else "unknown"
    yield Figure("model", model, _active(result), key="parameters")
    yield Figure("precision", result.inputs.precision, result.inputs.step)
    if result.dollars_per_million_tokens is not None:
        yield _cost(result, result.dollars_per_million_tokens)
    if result.dropped:
        note = "of the copies of tokens for experts"
        yield Figure("dropped", percent(result.dropped), note, key="dropped")
    if result.straggler_seconds > 0.0:
        share = result.straggler_seconds / (result.step_time - result.straggler_seconds)
        note = f"the step takes {percent(share)} longer than without slow ranks and links"
        shown = human_seconds(result.straggler_seconds)
        yield Figure("lost to stragglers", shown, note, key="straggler_seconds")
    if result.loading:
        yield waits_for_data(result.loading)
    gains = [f"{percent(gain)} over {name}" for name, gain in result.gains.items()]
    if gains:
        yield Figure("schedule", gains[0], ", ".join(gains[1:]))
    if result.staleness:
        first, last = result.staleness[0], result.staleness[-1]
        span = str(first) if first == last else f"{first} to {last}"
        note = "updates by which gradients are late, from the first to the last stage"
        yield Figure("staleness", span, note)


# The places where samples queue, and remedies.
_LIMITS = {
    "workers": ("the loader's workers", "more workers, faster decoding, or shorter waits"),
    "cores": ("the hosts' cores", "cheaper decoding, or decoding on the device"),
    "storage": ("the storage's bandwidth", "smaller samples, or more of the storage"),
    "operations": ("the storage's operations a second", "samples packed into larger files"),
    "client": ("the nodes' links to the storage", "smaller samples, or wider links"),
    "nvme": ("the drives", "smaller samples, or more drives"),
    "nic": ("the NICs", "smaller samples, or a network of its own for the storage"),
    "pod": ("the pods' uplinks", "smaller samples, or a network of its own for the storage"),
    "pcie": ("PCIe", "smaller samples on the device"),
    "port": ("PCIe", "smaller samples on the device"),
    "memory": ("the hosts' memory", "smaller samples on the device"),
}


def waits_for_data(loading: Mapping[str, Any]) -> Figure:
    """Return the time for which a step waits for samples, the place that limits it, and a cure."""
    place, cure = _LIMITS[loading["limit"]]
    needed, busy = human_seconds(loading["seconds"]), human_seconds(loading["busy"])
    most = f"a step's samples need {needed} of {place}"
    if loading["busy"] > loading["seconds"] * (1.0 + 1e-9):
        most += f", and all traffic there {busy}"
    note = f"{most}; {cure} would help" if loading["waits"] else f"hidden: {most}"
    return Figure("waits for data", human_seconds(loading["waits"]), note)


def _rate(result: Result) -> Figure:
    """Return the tokens a second, or the samples a second of models without tokens."""
    if result.inputs.counted == "samples":
        each = f"simulated, {count(result.samples_per_second / result.ranks)} per GPU"
        shown = rate(result.samples_per_second)
        return Figure("samples/s", shown, each, key="samples_per_second")
    shown = rate(result.tokens_per_second)
    return Figure("tokens/s", shown, _each(result), key="tokens_per_second")


def _each(result: Result) -> str:
    """Return the tokens a second of each GPU. The tokens of a recorded script without an embedding
    are unknown."""
    samples = f"{rate(result.samples_per_second)} samples/s"
    if not result.tokens_per_second:
        return f"unknown, as the script uses no embedding; {samples}"
    return f"simulated, {count(result.tokens_per_second_per_gpu)} per GPU, {samples}"


def _active(result: Result) -> str:
    fewer = f", {large(result.active_parameters)} a token"
    return "parameters" + fewer * (result.active_parameters != result.parameters)


def _cost(result: Result, dollars: float) -> Figure:
    """Return the rent of the GPUs (USD for a million tokens or samples)."""
    sure = likely.likely(result)
    bounds = likely.interval((sure.low * dollars, sure.high * dollars), sure.level, money)
    unit = "samples" if result.inputs.tokens == 1 else "tokens"
    note = f"{bounds} per million {unit} at {result.inputs.price}; simulated {money(dollars)} $"
    return Figure("cost", f"{money(sure.expected * dollars)} $", note)


def breakdown(result: Result) -> Section:
    """Show causes with their seconds and shares, largest first; the printed figures add up."""
    causes, step = _sorted(result.breakdown), result.step_time
    scale, unit = time_unit(step)
    times = apportioned([seconds / scale for seconds in causes.values()], 3)
    shares = apportioned([100 * seconds / step for seconds in causes.values()], 1)
    rows: list[Cells] = [
        (cause, f"{amount:.3f} {unit}", f"{share:.1f} %")
        for cause, amount, share in zip(causes, times, shares, strict=True)
    ]
    by_cause = Table(
        rows=[*rows, ("total", f"{step / scale:.3f} {unit}", "100.0 %")],
        shares=_relative(causes),
        caption="Seconds of the critical rank's step, by cause",
        keys=[*(f"breakdown.{cause}" for cause in causes), "step_time"],
    )
    return section("Where the time goes", by_cause, name="breakdown")


def stages(result: Result) -> Section | None:
    """Show a row for each stage if there are several; neighbours with equal figures share a row."""
    if len(result.stages) <= 1:
        return None
    with_memory = any("memory" in stage for stage in result.stages)
    slow = any(stage.get("stragglers") for stage in result.stages)
    head = ("stage", "layers", "compute", "bubble", *["stragglers"] * slow,
            *["memory"] * with_memory)  # fmt: skip
    rows = [_stage_row(stage, result.step_time, slow) for stage in result.stages]
    merged: list[Cells] = []
    for figures, group in groupby(enumerate(rows), key=lambda numbered: numbered[1]):
        numbers = [number for number, _ in group]
        name = f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
        merged.append((name, *figures))
    if len(merged) >= _MOST_STAGES:
        half = _MOST_STAGES // 2
        hidden = len(merged) + 1 - 2 * half
        merged[half - 1 : -half] = [(f"... {hidden} more",)]
    return section("Stages", table(merged, head), name="stages")


def _stage_row(stage: Mapping[str, Any], step: float, slow: bool) -> Cells:
    waits = [stage["bubble"], *[stage.get("stragglers", 0.0)] * slow]
    row = (
        str(stage["layers"]),
        human_seconds(stage["compute"]),
        *(f"{human_seconds(seconds)} ({percent(seconds / step)})" for seconds in waits),
    )
    return (*row, human_bytes(stage["memory"])) if "memory" in stage else row


def memory(result: Result) -> Section:
    """Show whether the fullest GPU's memory suffices, and its parts, largest first."""
    parts = _sorted({part: size for part, size in result.memory_per_gpu.items() if part != "total"})
    by_part = Table(
        rows=[(name, human_bytes(size)) for name, size in parts.items()],
        shares=_relative(parts),
        keys=[f"memory_per_gpu.{part}" for part in parts],
    )
    return section("Memory", Sentence(memory_line(result)), by_part, name="memory")


def _effort(result: Result) -> str:
    return (
        f"Simulated {several(result.ranks, 'rank')} as {several(result.roles, 'role')}, "
        f"{several(result.operations, 'operation')}, in {human_seconds(result.wall_seconds)}."
        f"{_sources(result.device_time)}"
    )


def _sources(shares: Mapping[str, float]) -> str:
    """Return the sources of kernel times if a profile is among the sources, otherwise ""."""
    if "profile" not in shares:
        return ""
    measured, modelled = percent(shares["profile"]), percent(shares.get("model", 0.0))
    return f"\nKernel times: {measured} from the profile, {modelled} from the model."


def _sorted(parts: Mapping[str, float]) -> dict[str, float]:
    """Return the parts above zero, largest first."""
    return {k: v for k, v in sorted(parts.items(), key=lambda item: -item[1]) if v > 0}


def _relative(parts: Mapping[str, float]) -> list[float]:
    """Return each part divided by the first, which is the largest."""
    values = list(parts.values())
    return [value / values[0] for value in values]
