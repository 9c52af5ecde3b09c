"""The page of workers that share updates."""

from collections.abc import Iterator, Sequence

import numpy as np
from bokeh.models import HoverTool, Range1d

from sim.engine.routes import Regions
from sim.hardware.cluster.link_names import links_named
from sim.interface.document import terminal
from sim.interface.document.nodes import Figures, Section, Sentence, Table, document, warnings
from sim.interface.page import inputs, network
from sim.interface.page.figures import blank, through
from sim.interface.page.page import Chart, html, paged
from sim.interface.page.timeline import chart
from sim.interface.plots.picture import PALETTE
from sim.interface.views import sharing as words
from sim.interface.views import topology
from sim.jobs.sharing.outcome import Outcome
from sim.jobs.sharing.update_record import CurvePoint
from sim.results.answer import finite
from sim.results.formatting import loss, time_unit

_POINTS = 1000  # points of a curve


def page(outcome: Outcome, files: Sequence[str]) -> str:
    """Return the page with all parts of an outcome."""
    numbers = outcome.to_dict()
    numbers["curve"] = finite([point._asdict() for point in _thinned(outcome.curve)])
    told = warnings(outcome.warnings)
    return html(
        document(outcome.scenario, headline(outcome), *told, *_sections(outcome, files)),
        subtitle=words.title(outcome),
        numbers=numbers,
    )


def headline(outcome: Outcome) -> Figures:
    """Return the key figures."""
    return words.figures(outcome)


def drawn(outcome: Outcome, *, whole: bool = True) -> Iterator[Section]:
    """Yield the drawings of a run: its timeline and its learning curve. A `whole` page also has the
    links on the cluster, and the table of learning, which `sim serve` shows elsewhere."""
    excerpt = outcome.excerpt
    if excerpt.end > 0.0:
        along = through(excerpt.end / time_unit(excerpt.end)[0])
        rows = Sentence(f"A row for each worker; shown is {outcome.excerpt_name}.")
        timeline = chart(excerpt, along, of=outcome.scenario)
        yield paged("Timeline", rows, timeline, name="timeline")
    if (learnt := words.learning(outcome)) and outcome.curve:
        yield paged(
            learnt.title, _learning(outcome), *(learnt.nodes if whole else ()), name="learning"
        )
    if whole and outcome.topology is not None:
        text = (
            "Cables have the colour of the busiest link of their kind: the share of the run for "
            "which it carries bytes."
        )
        (links,) = words.links(outcome).nodes
        assert isinstance(links, Table)
        given = outcome.inputs.plan.get("regions")
        regions = Regions(**given) if given else None
        yield network.section(outcome.topology, _busiest(outcome), links, text, regions)


def _sections(outcome: Outcome, files: Sequence[str]) -> Iterator[Section]:
    yield words.breakdown(outcome)
    yield from filter(None, (words.step(outcome), words.staleness(outcome)))
    yield from drawn(outcome)
    yield from filter(None, [words.memory(outcome)])
    given = [] if outcome.topology is None else [terminal.text(topology.view(outcome.topology))]
    yield inputs.shown([("", outcome.inputs)], files, given)


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
    """Return the busy share by kind of link; links that the drawing does not have are left out."""
    shares: dict[str, float] = {}
    for row in outcome.links:
        named = [link[0].partition("-")[0] for link in links_named(row["link"])[:1]]
        for kind in named or ["region"] * row["link"].startswith("region"):
            shares[kind] = max(shares.get(kind, 0.0), row["busy"])
    return shares
