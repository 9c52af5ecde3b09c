"""Show a run of workers that share updates: pace, the workers' time, links, memory, learning."""

from collections import Counter
from collections.abc import Iterator
from math import isfinite

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
from sim.jobs.sharing.outcome import Outcome
from sim.jobs.sharing.worker_counts import WorkerCount, WorkerCounts
from sim.results import likely
from sim.results.formatting import Cells, count, loss

_BINS = 12  # the most rows of the histogram
_LINKS = 5  # the most links that are shown, the busiest first

_HEAD = ("workers", "GPUs", "batch", "samples", "time", "cost", "gain")


def view(outcome: Outcome) -> Document:
    """Show the whole outcome of a run."""
    return document(
        title(outcome),
        figures(outcome),
        breakdown(outcome),
        step(outcome),
        links(outcome),
        memory(outcome),
        staleness(outcome),
        learning(outcome),
        Sentence(f"{outcome.events:,} events, {outcome.wall_seconds:.2f} s", "aside"),
        *warnings(outcome.warnings),
    )


def title(outcome: Outcome) -> str:
    """Return the name of the job, its method and its workers."""
    workers = f"{len(outcome.workers)} workers of {outcome.worker}"
    return f"{outcome.scenario}: {outcome.method}, {workers}"


def figures(outcome: Outcome) -> Figures:
    """Return the key figures."""
    return Figures(tuple(_figures(outcome)))


def _figures(outcome: Outcome) -> Iterator[Figure]:
    late, inputs = outcome.staleness, outcome.inputs
    note = likely.interval((outcome.time_low, outcome.time_high), outcome.interval["level"])
    yield Figure("time", human_seconds(outcome.time_expected), note, key="time_expected")
    note = f"{outcome.updates:,} updates; {likely.why(outcome.interval)}"
    yield Figure("simulated", human_seconds(outcome.time), note, key="time")
    yield Figure("updates/s", f"{outcome.updates_per_second:,.3g}", key="updates_per_second")
    yield Figure("samples/s", count(outcome.samples_per_second), key="samples_per_second")
    mean, most = f"{late['mean']:.2f} updates", f"at most {late['max']}"
    yield Figure("staleness", mean, most, key="staleness.mean")
    yield Figure("sent on all links", human_bytes(outcome.bytes), key="bytes")
    yield Figure("precision", inputs.precision, inputs.step)
    if outcome.to_target:
        found = outcome.to_target
        note = f"{count(found['samples'])} samples at {found['batch']:,.0f} an update, by its curve"
        seconds = human_seconds(found["seconds"])
        yield Figure("to the target", seconds, note, key="to_target.seconds")
    if outcome.straggler_seconds:
        yield _lost(outcome.straggler_seconds)
    if outcome.dropped:
        yield Figure("dropped updates", f"{outcome.dropped:,}", key="dropped")
    if outcome.lost:
        note = "with servers, since their checkpoints"
        yield Figure("lost updates", f"{outcome.lost:,}", note, key="lost")


def _lost(seconds: float) -> Figure:
    """Return the time lost to stragglers, against a run of the same work without stragglers. A
    negative loss is a gain: messages of workers that are out of step collide less."""
    shown = human_seconds(abs(seconds))
    if seconds < 0.0:
        return Figure("gained by stragglers", shown, "messages collide less")
    return Figure("lost to stragglers", shown, key="straggler_seconds")


def breakdown(outcome: Outcome) -> Section:
    """Show the shares of the workers' time by cause: the mean, the lowest and the highest."""
    shares = {
        cause: share
        for cause, share in sorted(outcome.shares.items(), key=lambda item: -item[1])
        if share > 0.0005
    }
    rows = [(cause, f"{100 * share:.1f} %", _spread(outcome, cause))
            for cause, share in shares.items()]  # fmt: skip
    keys = [f"shares.{cause}" for cause in shares]
    return section(
        "Where the workers' time goes, in the mean", Table(rows=rows, keys=keys), name="breakdown"
    )


def _spread(outcome: Outcome, cause: str) -> str:
    """Name the workers with the lowest and the highest share of a cause; "" if all shares are about
    equal."""
    rows = sorted(outcome.workers, key=lambda row: float(row[cause]))
    least, most = rows[0], rows[-1]
    if most[cause] - least[cause] < 0.001:
        return ""
    low, high = (f"{100 * row[cause]:.1f} % (worker {row['rank']})" for row in (least, most))
    return f"{low} to {high}"


def step(outcome: Outcome) -> Section | None:
    """Show a worker's step by cause, if the worker is a group of GPUs."""
    whole = sum(outcome.step.values())
    rows = [
        (cause, human_seconds(seconds), f"{100 * seconds / whole:.1f} %")
        for cause, seconds in sorted(outcome.step.items(), key=lambda item: -item[1])
        if seconds > 0.0005 * whole
    ]
    return section("A step of a worker", table(rows), name="step") if rows else None


def links(outcome: Outcome) -> Section:
    """Show the busiest links, their bytes and their share of busy time."""
    rows = [
        (link["link"], human_bytes(link["bytes"]), f"{100 * link['busy']:.1f} % busy")
        for link in outcome.links[:_LINKS]
    ]
    keys = [f"links.{number}.bytes" for number in range(len(rows))]
    return section("Busiest links", Table(rows=rows, keys=keys), name="links")


def memory(outcome: Outcome) -> Section | None:
    """Show the memory in use of each kind of device, its capacity, and the largest part."""
    rows: list[Cells] = []
    for holder in outcome.memory:
        largest = max(holder["parts"], key=lambda name: holder["parts"][name])
        room = f"of {human_bytes(holder['room'])}" if holder["room"] else ""
        size = human_bytes(holder["total"])
        rows.append((holder["name"], size, room, f"most of it {largest}"))
    return section("Memory", table(rows), name="memory") if rows else None


def staleness(outcome: Outcome) -> Section | None:
    """Show the number of updates by staleness, in at most twelve rows."""
    if not outcome.staleness["max"]:
        return None
    width = outcome.staleness["max"] // _BINS + 1
    bins = Counter(dict.fromkeys(range(0, outcome.staleness["max"] + 1, width), 0))
    for late, times in outcome.staleness["histogram"].items():
        bins[int(late) // width * width] += times
    most = max(bins.values())
    named = {
        str(first) if width == 1 else f"{first} to {first + width - 1}": times
        for first, times in bins.items()
    }
    counted = Table(
        rows=[(name, f"{times:,}") for name, times in named.items()],
        shares=[times / most for times in named.values()],
    )
    return section("Updates by staleness", counted, name="staleness")


def learning(outcome: Outcome) -> Section | None:
    """Show the loss at the end, and the time to the target."""
    if outcome.loss is None:
        return None
    task = Sentence(f"{outcome.task}: {outcome.label}")
    return section("Learning", task, table(_loss_rows(outcome)), name="learning")


def _loss_rows(outcome: Outcome) -> Iterator[Cells]:
    if outcome.diverged:
        yield "loss at the end", "diverged", "a lower sharing.learning.rate may help"
    else:
        yield "loss at the end", loss(outcome.loss or 0.0)
    if outcome.accuracy is not None:
        yield "right answers", f"{outcome.accuracy:.1%}"
    if outcome.spread.get("distance") and not outcome.diverged:
        spread = outcome.spread
        yield "loss of the worst worker", loss(spread["worst"])
        yield "mean loss of the workers", loss(spread["worker"])
        yield "distance between the workers", f"{spread['distance']:.3g}"
    if outcome.rate:
        yield "learning rate", outcome.rate
    if outcome.target is not None:
        yield "time to target", _to_target(outcome, outcome.target)


def _to_target(outcome: Outcome, target: float) -> str:
    """Say when the loss reaches its target for good, or that the loss rises above it again."""
    if outcome.time_to_target is not None:
        return f"{human_seconds(outcome.time_to_target)}, a loss of {target:g} from there on"
    if there := outcome.touched(target):
        return f"never: a loss of {target:g} after {human_seconds(there.seconds)} is not kept"
    return f"never: no loss of {target:g}"


def worker_counts(counts: WorkerCounts) -> Document:
    """Show a row for each number of workers, and where more workers stop helping."""
    rows = table(map(_cells, counts.rows), _HEAD)
    return document(counts.scenario, rows, Sentence(counts.basis), Sentence(counts.sentence))


def _cells(row: WorkerCount) -> Cells:
    return (
        f"{row.workers:,}",
        f"{row.gpus:,}",
        f"{row.batch:,.0f}",
        count(row.samples) if isfinite(row.samples) else "",
        row.time_shown,
        row.cost_shown,
        f"{row.gain:.0%}" if isfinite(row.gain) else "",
    )
