"""An outcome of shared updates as a page."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from sim.config.units import human_bytes, human_seconds
from sim.jobs.sharing.outcome import Outcome
from sim.results.formatting import bar, count, loss
from sim.results.tables import Cells

_BINS = 12  # of the histogram, at most


def text(outcome: Outcome) -> str:
    """The outcome in plain text."""
    blocks = [
        title(outcome) + "\n" + aligned(headline(outcome)),
        "Where the workers' time goes, in the mean\n" + aligned(time_rows(outcome)),
        "Busiest links\n" + aligned(link_rows(outcome)),
    ]
    if outcome.step:
        blocks.insert(1, "A step of a worker\n" + aligned(step_rows(outcome)))
    if outcome.memory:
        blocks.append("Memory\n" + aligned(memory_rows(outcome)))
    if outcome.staleness["max"]:
        blocks.append("Updates by staleness\n" + aligned(staleness_rows(outcome)))
    if outcome.loss is not None:
        blocks.append(f"Learning: {outcome.task} ({outcome.label})\n" + aligned(loss_rows(outcome)))
    foot = f"{outcome.events:,} events, {outcome.wall_seconds:.2f} s"
    blocks.append("\n".join([foot, *(f"warning: {warning}" for warning in outcome.warnings)]))
    return "\n\n".join(blocks)


def html(outcome: Outcome) -> str:
    """The same page for a notebook."""
    parts = [f"<h4>{escape(title(outcome))}</h4>", html_table(headline(outcome))]
    parts += ["<b>Where the workers' time goes</b>", html_table(time_rows(outcome))]
    parts += ["<b>Busiest links</b>", html_table(link_rows(outcome))]
    if outcome.memory:
        parts += ["<b>Memory</b>", html_table(memory_rows(outcome))]
    if outcome.staleness["max"]:
        parts += ["<b>Updates by staleness</b>", html_table(staleness_rows(outcome))]
    if outcome.loss is not None:
        parts += [f"<b>Learning: {escape(outcome.task)}</b> ({outcome.label})"]
        parts.append(html_table(loss_rows(outcome)))
    parts += [f"<div>⚠ {escape(warning)}</div>" for warning in outcome.warnings]
    return '<div style="line-height:1.4">' + "\n".join(parts) + "</div>"


def headline(outcome: Outcome) -> list[Cells]:
    """The numbers that a reader came for."""
    late = outcome.staleness
    rows: list[Cells] = [
        ("time", human_seconds(outcome.time), f"{outcome.updates:,} updates"),
        ("updates/s", f"{outcome.updates_per_second:,.3g}", ""),
        ("samples/s", count(outcome.samples_per_second), ""),
        ("staleness", f"{late['mean']:.2f} updates", f"at most {late['max']}"),
        ("on all links", human_bytes(outcome.bytes), ""),
        ("steps in", outcome.inputs.precision, outcome.inputs.step),
    ]
    if outcome.to_target:
        found = outcome.to_target
        told = f"{found['samples']:,.3g} samples at {found['batch']:,.0f} an update by its curve"
        rows.append(("to the target", human_seconds(found["seconds"]), told))
    if outcome.straggler_seconds:
        rows.append(_lost(outcome.straggler_seconds))
    if outcome.dropped:
        rows.append(("dropped updates", f"{outcome.dropped:,}", ""))
    if outcome.lost:
        rows.append(("lost updates", f"{outcome.lost:,}", "with servers, since their checkpoints"))
    return rows


def _lost(seconds: float) -> Cells:
    """The same work on the same devices with nothing slow: workers that are never in step also
    collide less, which may be worth more than they lose."""
    if seconds < 0.0:
        return "gained by stragglers", human_seconds(-seconds), "messages collide less"
    return "lost to stragglers", human_seconds(seconds), ""


def title(outcome: Outcome) -> str:
    return (
        f"{outcome.scenario}: {outcome.method}, {len(outcome.workers)} workers of {outcome.worker}"
    )


def time_rows(outcome: Outcome) -> Iterator[Cells]:
    for cause, share in sorted(outcome.shares.items(), key=lambda item: -item[1]):
        if share > 0.0005:
            yield cause, f"{100 * share:.1f} %", _spread(outcome, cause)


def _spread(outcome: Outcome, cause: str) -> str:
    """The workers with the least and the most of it."""
    rows = sorted(outcome.workers, key=lambda row: float(row[cause]))
    least, most = rows[0], rows[-1]
    if most[cause] - least[cause] < 0.001:
        return ""
    low, high = (f"{100 * row[cause]:.1f} % (worker {row['rank']})" for row in (least, most))
    return f"{low} to {high}"


def staleness_rows(outcome: Outcome) -> Iterator[Cells]:
    """How many updates were so late, in at most twelve rows."""
    counted = {int(late): times for late, times in outcome.staleness["histogram"].items()}
    width = outcome.staleness["max"] // _BINS + 1
    bins = Counter(dict.fromkeys(range(0, outcome.staleness["max"] + 1, width), 0))
    for late, times in counted.items():
        bins[late // width * width] += times
    most = max(bins.values())
    for first, times in bins.items():
        name = str(first) if width == 1 else f"{first} to {first + width - 1}"
        yield name, f"{times:,}", bar(times / most)


def step_rows(outcome: Outcome) -> Iterator[Cells]:
    whole = sum(outcome.step.values())
    for cause, seconds in sorted(outcome.step.items(), key=lambda item: -item[1]):
        if seconds > 0.0005 * whole:
            yield cause, human_seconds(seconds), f"{100 * seconds / whole:.1f} %"


def memory_rows(outcome: Outcome) -> Iterator[Cells]:
    """How much each has of how much, and the largest part."""
    for one in outcome.memory:
        largest = max(one["parts"], key=lambda name: one["parts"][name])
        room = f"of {human_bytes(one['room'])}" if one["room"] else ""
        yield one["name"], human_bytes(one["total"]), room, f"most of it {largest}"


def link_rows(outcome: Outcome) -> list[Cells]:
    return [
        (link["link"], human_bytes(link["bytes"]), f"{100 * link['busy']:.1f} % busy")
        for link in outcome.links[:5]
    ]


def loss_rows(outcome: Outcome) -> list[Cells]:
    rows: list[Cells] = [("loss at the end", loss(outcome.loss or 0.0))]
    if outcome.diverged:
        rows = [("loss at the end", "diverged", "a lower sharing.learning.rate may help")]
    if outcome.accuracy is not None:
        rows.append(("right answers", f"{outcome.accuracy:.1%}"))
    if outcome.spread.get("distance") and not outcome.diverged:
        spread = outcome.spread
        rows.append(("of the worst worker", loss(spread["worst"])))
        rows.append(("of workers in the mean", loss(spread["worker"])))
        rows.append(("distance of the workers", f"{spread['distance']:.3g}"))
    if outcome.rate:
        rows.append(("learning rate", outcome.rate))
    if outcome.target is not None:
        rows.append(("time to target", _to_target(outcome, outcome.target)))
    return rows


def _to_target(outcome: Outcome, target: float) -> str:
    """When the loss is at its target for good, or that it only passes it."""
    if outcome.time_to_target is not None:
        return f"{human_seconds(outcome.time_to_target)}, a loss of {target:g} from there on"
    if there := outcome.touched(target):
        return f"never: a loss of {target:g} after {human_seconds(there.seconds)} is not kept"
    return f"never: no loss of {target:g}"


def aligned(rows: Iterable[Cells]) -> str:
    """Rows as text in columns."""
    rows = list(rows)
    widths = [max(len(row[i]) for row in rows if i < len(row)) for i in range(_columns(rows))]
    lines = (
        "  ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=False)) for row in rows
    )
    return "\n".join(f"  {line}".rstrip() for line in lines)


def _columns(rows: Sequence[Cells]) -> int:
    return max((len(row) for row in rows), default=0)


def html_table(rows: Iterable[Cells]) -> str:
    """Rows as an HTML table."""
    cells = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
    return "<table>" + "".join(f"<tr>{row}</tr>" for row in cells) + "</table>"
