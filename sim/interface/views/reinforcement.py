"""Show an RL loop of generation and training: a step's seconds, both pools of GPUs, and the
staleness of the answers that are trained on."""

from collections.abc import Iterator

from sim.config.readable import human_bytes, human_seconds
from sim.interface.document.nodes import (
    Document,
    Figure,
    Figures,
    Sentence,
    Table,
    document,
    section,
    table,
    warnings,
)
from sim.jobs.reinforcement.answer import Pool, ReinforcementAnswer, StepRow
from sim.results.formatting import Cells, percent

_SHOWN = 12  # the most steps, and the most rows of staleness, that are listed


def view(answer: ReinforcementAnswer) -> Document:
    """Show key figures, the trainer's seconds by cause, the pools of GPUs, staleness and steps."""
    gpus, shown = answer.inputs.gpus, answer.steps[:_SHOWN]
    return document(
        f"{answer.scenario} on {gpus:,} GPUs of {answer.inputs.cluster}: {answer.mode}, "
        f"{answer.placement}",
        Figures(tuple(_figures(answer))),
        section("Where the trainer's time goes",
                Sentence("Seconds of a step, including waits for the other side"),
                _spent(answer)),
        section("Pools", table(map(_pool, answer.pools), _POOL), *map(_memory, answer.pools)),
        section("Staleness of the answers that are learnt from",
                table(_ages(answer), ("versions", "answers")))
        if len(answer.staleness) > 1
        else None,
        section("Steps", table(map(_step, shown), _STEP)),
        Sentence(f"{answer.events:,} events, {answer.wall_seconds:.2f} s", "aside"),
        *warnings(answer.warnings),
        line=f"{human_seconds(answer.step_time)} a step, {answer.tokens_per_second:,.0f} tokens/s",
    )  # fmt: skip


def _figures(answer: ReinforcementAnswer) -> Iterator[Figure]:
    note = f"{answer.samples:,} answers; from one step to the next"
    if answer.spread > 0.005 * answer.step_time:
        note += f", +- {human_seconds(answer.spread)}"
    yield Figure("step time", human_seconds(answer.step_time), note, key="step_time")
    rate = f"{answer.samples_per_second:,.3g} answers/s"
    note = f"learnt from, {answer.tokens_per_gpu:,.1f} per GPU; {rate}"
    yield Figure("tokens/s", f"{answer.tokens_per_second:,.0f}", note, key="tokens_per_second")
    note = f"{human_seconds(answer.tail)} of it for the last tenth of the answers"
    yield Figure("generation", human_seconds(answer.generation), note, key="generation")
    note = f"{percent(answer.cut)} of the answers are cut at the cap"
    yield Figure("mean length", f"{answer.mean_length:,.0f} tokens", note, key="mean_length")
    note = f"in {human_seconds(answer.weights['seconds'])} of a step"
    yield Figure("weights", human_bytes(answer.weights["bytes"]), note, key="weights.bytes")
    if answer.lost or answer.mixed:
        several = f"several versions wrote {percent(answer.mixed)} of the answers"
        note = f"of written tokens are not learnt from; {several}"
        yield Figure("lost", percent(answer.lost), note, key="lost")
    if answer.straggler_seconds:
        shown = human_seconds(answer.straggler_seconds)
        yield Figure("lost to stragglers", f"{shown} a step", key="straggler_seconds")
    if answer.dollars is not None:
        note = f"at {answer.inputs.price}"
        yield Figure("cost", f"{answer.dollars:,.2f} $ a step", note, key="dollars")


def _spent(answer: ReinforcementAnswer) -> Table:
    """Return the seconds of a step by cause, and their shares of the step."""
    spent = {cause: seconds for cause, seconds in answer.spent.items() if seconds > 0.0}
    shares = [seconds / answer.step_time for seconds in spent.values()]
    rows = [
        (cause, human_seconds(seconds), percent(share))
        for (cause, seconds), share in zip(spent.items(), shares, strict=True)
    ]
    rows.append(("total", human_seconds(answer.step_time), percent(1.0)))
    return Table(rows=rows, shares=shares, keys=[f"spent.{cause}" for cause in spent])


_POOL = ("GPUs", "number", "idle, of all time", "tokens/s, while at work")
_STEP = ("step", "seconds", "generation", "last tenth", "tokens", "longest answer", "staleness")


def _pool(pool: Pool) -> Cells:
    return pool.name, f"{pool.gpus:,}", percent(pool.idle), f"{pool.tokens_per_second:,.0f}"


def _memory(pool: Pool) -> Sentence:
    parts = ", ".join(
        f"{name} {human_bytes(size)}"
        for name, size in sorted(pool.held.items(), key=lambda item: -item[1])
        if size > 0.01 * pool.room
    )
    total = human_bytes(sum(pool.held.values()))
    return Sentence(f"Memory, {pool.name}: {total} of {human_bytes(pool.room)}: {parts}.")


def _ages(answer: ReinforcementAnswer) -> Iterator[Cells]:
    for age, share in list(answer.staleness.items())[:_SHOWN]:
        yield age, percent(share)


def _step(step: StepRow) -> Cells:
    return (
        f"{step.number}",
        human_seconds(step.seconds),
        human_seconds(step.generation),
        human_seconds(step.tail),
        f"{step.tokens:,}",
        f"{step.longest:,}",
        f"{step.staleness:.2f}",
    )
