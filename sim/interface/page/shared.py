"""The page of workers that share updates."""

from collections.abc import Iterator, Sequence

import numpy as np
from bokeh.models import HoverTool, Range1d

from sim.config.units import human_bytes, human_seconds
from sim.hardware.cluster.link import links_named
from sim.interface.page import inputs, network
from sim.interface.page.figures import blank, through
from sim.interface.page.page import html
from sim.interface.page.section import Chart, Figure, Section, Table
from sim.interface.page.timeline import chart
from sim.interface.plots.picture import PALETTE
from sim.interface.views import sharing as words
from sim.interface.views.topology import describe
from sim.jobs.sharing.outcome import Outcome
from sim.jobs.sharing.update_record import CurvePoint
from sim.results.formatting import finite, loss, time_unit

_POINTS = 1000  # of a curve


def page(outcome: Outcome, files: Sequence[str]) -> str:
    """All that an outcome knows."""
    numbers = outcome.to_dict()
    numbers["curve"] = finite([point._asdict() for point in _thinned(outcome.curve)])
    return html(
        outcome.scenario,
        subtitle=words.title(outcome),
        figures=list(_figures(outcome)),
        warnings=outcome.warnings,
        sections=list(_sections(outcome, files)),
        numbers=numbers,
    )


def _figures(outcome: Outcome) -> Iterator[Figure]:
    late = outcome.staleness
    yield Figure(title="time", key="time", shown=human_seconds(outcome.time),
                 note=f"{outcome.updates:,} updates")  # fmt: skip
    yield Figure(title="updates/s", key="updates_per_second",
                 shown=f"{outcome.updates_per_second:,.3g}")  # fmt: skip
    yield Figure(title="samples/s", key="samples_per_second",
                 shown=f"{outcome.samples_per_second:,.0f}")  # fmt: skip
    yield Figure(title="staleness", key="staleness.mean", shown=f"{late['mean']:.2f}",
                 note=f"updates in the mean, at most {late['max']}")  # fmt: skip
    yield Figure(title="on all links", key="bytes", shown=human_bytes(outcome.bytes))
    if outcome.diverged:
        yield Figure(title="loss at the end", key="diverged", shown="diverged")
    elif outcome.loss is not None:
        yield Figure(title="loss at the end", key="loss", shown=loss(outcome.loss))


def _sections(outcome: Outcome, files: Sequence[str]) -> Iterator[Section]:
    excerpt = outcome.excerpt
    yield Section(name="breakdown", title="Where the time goes", tables=list(_breakdown(outcome)))
    if excerpt.end > 0.0:
        along = through(excerpt.end / time_unit(excerpt.end)[0])
        yield Section(
            name="timeline",
            title="Timeline",
            text=[f"A row for each worker; shown is {outcome.excerpt_name}."],
            charts=[chart(excerpt, along, of=outcome.scenario)],
        )
    if outcome.curve:
        yield Section(
            name="learning",
            title="Learning",
            text=[f"{outcome.task}: {outcome.label}."],
            charts=[_learning(outcome)],
            tables=[Table(caption="At the end", rows=words.loss_rows(outcome))],
        )
    if outcome.memory:
        rows = list(words.memory_rows(outcome))
        yield Section(name="memory", title="Memory", tables=[Table(caption="Held", rows=rows)])
    if outcome.topology is not None:
        text = (
            "Cables have the colour of the busiest link of their kind: the share of the run for "
            "which it carries bytes."
        )
        rows = words.link_rows(outcome)
        keys = [f"links.{number}.bytes" for number in range(len(rows))]
        links = Table(caption="Busiest links", rows=rows, keys=keys)
        yield network.section(outcome.topology, _busiest(outcome), links, text)
    given = [] if outcome.topology is None else [describe(outcome.topology)]
    yield inputs.section(outcome.inputs, files, given)


def _breakdown(outcome: Outcome) -> Iterator[Table]:
    rows = list(words.time_rows(outcome))
    shares = [outcome.shares[row[0]] for row in rows]
    yield Table(
        caption="Of all workers in the mean, and of the workers with the least and the most of it",
        rows=rows,
        shares=[share / max(shares) for share in shares],
        keys=[f"shares.{row[0]}" for row in rows],
    )
    if outcome.step:
        yield Table(caption="A step of a worker", rows=list(words.step_rows(outcome)))
    if outcome.staleness["max"]:
        yield Table(caption="Updates by staleness", rows=list(words.staleness_rows(outcome)))


def _thinned(curve: Sequence[CurvePoint]) -> list[CurvePoint]:
    kept = np.unique(np.linspace(0, len(curve) - 1, min(len(curve), _POINTS)).astype(int))
    return [curve[number] for number in kept]


def _learning(outcome: Outcome) -> Chart:
    points = _thinned(outcome.curve)
    scale, unit = time_unit(points[-1].seconds)
    along = through(points[-1].seconds / scale)
    tips = [("time", f"@time{{0.0000}} {unit}"), ("loss", "@loss{0.0000}"),
            ("samples", "@samples{0,0}"), ("sent", "@bytes{0.000} GB")]  # fmt: skip
    hover = HoverTool(tooltips=tips, mode="vline")
    made = blank(name="learning", height=300, along=along, hover=hover,
                 x_axis_label=f"simulated time ({unit})", y_axis_label="loss")  # fmt: skip
    columns = {
        "time": np.array([point.seconds / scale for point in points]),
        "loss": np.array([point.loss for point in points]),
        "samples": np.array([point.samples for point in points]),
        "bytes": np.array([1e-9 * point.bytes for point in points]),
    }
    made.line("time", "loss", source=columns, line_width=1.6, color=PALETTE[0])
    if isinstance(made.y_range, Range1d):
        made.y_range.start = 0.0
    says = f"Loss against simulated time, from {loss(points[0].loss)} to {loss(points[-1].loss)}"
    return Chart(name="learning", figure=made, says=f"{says}.", legend={"loss": PALETTE[0]})


def _busiest(outcome: Outcome) -> dict[str, float]:
    """By kinds of links; what is no link of the drawing is left out."""
    shares: dict[str, float] = {}
    for row in outcome.links:
        for link in links_named(row["link"])[:1]:
            kind = link[0].partition("-")[0]
            shares[kind] = max(shares.get(kind, 0.0), row["busy"])
    return shares
