"""The page of jobs side by side."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sim.analysis.comparison.comparison import Comparison
from sim.engine.timeline import Timeline
from sim.interface.document.nodes import (
    Figure,
    Figures,
    Listing,
    Section,
    Sentence,
    document,
    section,
)
from sim.interface.page import inputs
from sim.interface.page.figures import through
from sim.interface.page.network import element
from sim.interface.page.page import Drawing, html, paged
from sim.interface.page.timeline import chart
from sim.interface.views import comparison as words
from sim.results.formatting import time_unit


def page(compared: Comparison, files: Sequence[str]) -> str:
    """Return the page of a comparison, with timelines on a common scale that move together."""
    title = " against ".join(compared.names[:3]) + ", ..." * (len(compared.names) > 3)
    best = Figures((Figure("best", compared.winner, key="best"),))
    return html(
        document(title, best, *_sections(compared, files)),
        subtitle=compared.title,
        numbers=compared.to_dict(),
    )


def _sections(compared: Comparison, files: Sequence[str]) -> Iterator[Section]:
    asked = [Listing(f"{name}: {asked}") for name, asked in compared.asked.items()]
    table = words.side_by_side(compared)
    reason = Sentence(compared.reason)
    yield section(table.title, reason, *table.nodes, *asked, name="table")
    parts = [(Sentence(part.title), *part.nodes) for part in words.differences(compared)]
    if parts:
        nodes = [node for part in parts for node in part]
        yield section("Where the differences come from", *nodes, name="differences")
    known = [(case.name, case.result.excerpt) for case in compared.cases]
    drawn = [
        (name, window) for name, window in known if window and window.roles and window.end > 0.0
    ]
    if drawn:
        yield _timelines(drawn)
    if any(case.result.get("curve") for case in compared.cases):
        yield paged(
            "Learning", Drawing(element(compared.plot()), "Losses of all jobs."), name="learning"
        )
    yield inputs.shown([*compared.inputs.items()], files, ())


def _timelines(drawn: Sequence[tuple[str, Timeline]]) -> Section:
    end = max(timeline.end for _, timeline in drawn)
    along = through(end / time_unit(end)[0])
    charts = [
        replace(chart(timeline, along, of=name, name=f"timeline-{n}", end=end), moves=n == 0)
        for n, (name, timeline) in enumerate(drawn)
    ]
    legend = {meaning: colour for panel in charts for meaning, colour in panel.legend.items()}
    charts = [replace(panel, legend={}) for panel in charts]
    for panel in charts[:-1]:
        panel.figure.xaxis.visible = False
    charts[-1] = replace(charts[-1], legend=legend)
    together = Sentence("All timelines have the same scale and move together.")
    return paged("Timelines", together, *charts, name="timeline")
