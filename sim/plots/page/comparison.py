"""The page of jobs side by side."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sim.engine.timeline import Timeline
from sim.plots.page import inputs
from sim.plots.page.figures import through
from sim.plots.page.network import element
from sim.plots.page.page import html
from sim.plots.page.section import Figure, Section, Table
from sim.plots.page.timeline import chart
from sim.results.answer import Inputs
from sim.results.formatting import time_unit
from sim.results.outcome import Outcome

if TYPE_CHECKING:
    from sim.comparison.comparison import Comparison


def page(compared: "Comparison", files: Sequence[str]) -> str:
    """Everything that a comparison says, and the timelines to one scale, which move together."""
    return html(
        " against ".join(compared.names[:3]) + ", ..." * (len(compared.names) > 3),
        subtitle=compared.title,
        figures=[Figure(title="best", shown=compared.winner, key="best")],
        warnings=[],
        sections=list(_sections(compared, files)),
        numbers=compared.to_dict(),
        command="sim compare",
    )


def _sections(compared: "Comparison", files: Sequence[str]) -> Iterator[Section]:
    yield Section(
        name="table",
        title="Side by side",
        text=[compared.reason],
        tables=[Table(caption=compared.title, rows=compared.table, headed=True)],
        given=[f"{name}: {asked}" for name, asked in compared.asked.items()],
    )
    head = ("", *compared.names)
    parts = [Table(caption=f"{own.title}, against {compared.names[0]}", rows=[head, *own.rows],
                   headed=True) for own in compared.parts if own.moves]  # fmt: skip
    if parts:
        yield Section(name="differences", title="Where the differences come from", tables=parts)
    drawn = [(case.name, _timeline(case.result)) for case in compared.cases]
    drawn = [(name, own) for name, own in drawn if own.roles and own.end > 0.0]
    if drawn:
        end = max(own.end for _, own in drawn)
        along = through(end / time_unit(end)[0])
        yield Section(
            name="timeline",
            title="Timelines",
            text=["To one scale; they move together."],
            charts=[
                chart(own, along, of=name, name=f"timeline-{number}", end=end)
                for number, (name, own) in enumerate(drawn)
            ],
        )
    if any(isinstance(case.result, Outcome) and case.result.curve for case in compared.cases):
        yield Section(name="learning", title="Learning", drawing=element(compared.plot()))
    given = [f"{name}\n{inputs.told(own)}" for name, own in compared.inputs.items()]
    yield inputs.section(Inputs(), files, given)


def _timeline(result: object) -> Timeline:
    timeline = result.excerpt if isinstance(result, Outcome) else getattr(result, "timeline")  # noqa: B009
    assert isinstance(timeline, Timeline)
    return timeline
