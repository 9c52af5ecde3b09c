"""Show a model that answers prompts: its rate, the times of answers, the parts of a step."""

from collections.abc import Iterator

from sim.config.readable import human_bytes, human_seconds
from sim.interface.document.nodes import (
    Document,
    Figure,
    Figures,
    Section,
    Table,
    document,
    section,
    table,
    warnings,
)
from sim.jobs.generation.answer import Generated, Spread
from sim.results.formatting import Cells, count, percent, several

_LITTLE = 0.0005  # idle time below this share of the servers' time is not shown
_PARTS = {
    "products": "products bound by reading weights, or by multiplying",
    "attention": "reading the cache of keys and values",
    "communication": "among the GPUs of a server",
    "other kernels": "norms, activations, sampling",
    "host": "scheduling, inputs and outputs of a step",
}


def view(answer: Generated) -> Document:
    """Show key figures, the times of answers, a decode step and the memory of a GPU."""
    return document(
        f"{answer.scenario}: {several(answer.answers, 'answer')} of {answer.inputs.model} by "
        f"{several(answer.servers, 'server')} ({_layout(answer)}), {answer.inputs.gpus:,} GPUs of "
        f"{answer.inputs.cluster}",
        Figures(tuple(_figures(answer))),
        _waits(answer),
        _step(answer),
        _memory(answer),
        *warnings(answer.warnings),
        line=f"{count(answer.tokens_per_second)} tokens/s, {human_seconds(answer.time)}",
    )


def _layout(answer: Generated) -> str:
    """Name a server's parallel degrees above 1, its engine and its precision."""
    plan, inputs = answer.inputs.plan, answer.inputs
    degrees = [f"{key} {plan[key]}" for key in ("tp", "pp", "dp", "ep") if plan[key] > 1]
    return ", ".join([*degrees, inputs.stack, inputs.precision])


def _figures(answer: Generated) -> Iterator[Figure]:
    note = f"until the last of {count(answer.tokens)} tokens"
    yield Figure("time", human_seconds(answer.time), note, key="time")
    note = f"of answers, {answer.tokens_per_second_per_gpu:,.0f} per GPU"
    yield Figure("tokens/s", count(answer.tokens_per_second), note, key="tokens_per_second")
    note = f"median; 95 % within {human_seconds(answer.first.p95)}"
    yield Figure("first token", human_seconds(answer.first.median), note, key="first.median")
    if answer.each:
        note = f"median; 95 % within {human_seconds(answer.each.p95)}"
        yield Figure("each token", human_seconds(answer.each.median), note, key="each.median")
    note = f"sequences on a server, on average; the most time goes to {_PARTS[answer.limit]}"
    yield Figure("batch", f"{answer.batch:,.1f}", note, key="batch")
    note = f"of {answer.cache_tokens:,} tokens a server (mean); {percent(answer.fullest)} at most"
    yield Figure("cache in use", percent(answer.cache), note, key="cache")
    if answer.preempted:
        note = f"times a cache was lost; prefill computed {count(answer.prompt_tokens)} tokens"
        yield Figure("preempted", f"{answer.preempted:,}", note, key="preempted")
    if answer.idle > _LITTLE:
        note = f"of the servers' time; some are idle for the last {percent(answer.tail)} of the run"
        yield Figure("idle", percent(answer.idle), note, key="idle")
    if answer.straggler_seconds:
        lost = human_seconds(answer.straggler_seconds)
        yield Figure("lost to stragglers", lost, key="straggler_seconds")
    if answer.dollars_per_million is not None:
        note = f"a million tokens of answers; {answer.inputs.price}"
        dollars = f"{answer.dollars_per_million:.2f} USD"
        yield Figure("cost", dollars, note, key="dollars_per_million")


def _waits(answer: Generated) -> Section:
    spreads = {"first token": answer.first, "each token": answer.each, "answer": answer.whole}
    rows = [_spread(name, spread) for name, spread in spreads.items() if spread]
    lengths = answer.lengths
    tokens = (lengths.mean, lengths.median, lengths.p95, lengths.longest)
    rows.append(("tokens", *(f"{value:,.0f}" for value in tokens)))
    return section("Answers", table(rows, ("", "mean", "median", "95 % within", "longest")))


def _spread(name: str, spread: Spread) -> Cells:
    values = (spread.mean, spread.median, spread.p95, spread.longest)
    return name, *map(human_seconds, values)


def _step(answer: Generated) -> Section:
    """Show a decode step by part."""
    whole = sum(answer.step.values())
    rows = [(part, human_seconds(seconds), percent(seconds / whole), _PARTS[part])
            for part, seconds in answer.step.items()]  # fmt: skip
    keys = [f"step.{part}" for part in answer.step]
    title = f"A decode step of {human_seconds(whole)}, with the mean batch and cache"
    return section(title, Table(rows=rows, keys=keys), name="step")


def _memory(answer: Generated) -> Section:
    """Show the memory of a GPU by part."""
    parts = answer.memory
    rows = [(part, human_bytes(size), percent(size / answer.room)) for part, size in parts.items()]
    keys = [f"memory.{part}" for part in parts]
    title = f"Memory of a GPU, of {human_bytes(answer.room)}"
    return section(title, Table(rows=rows, keys=keys), name="memory")
