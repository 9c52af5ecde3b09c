"""The page of jobs side by side."""

from collections.abc import Iterator, Sequence

from sim.analysis.comparison.comparison import Comparison
from sim.interface.page import inputs
from sim.interface.page.figures import through
from sim.interface.page.network import element
from sim.interface.page.page import html
from sim.interface.page.section import Figure, Section, Table
from sim.interface.page.timeline import chart
from sim.results.answer import Inputs
from sim.results.formatting import time_unit


def page(compared: Comparison, files: Sequence[str]) -> str:
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


def _sections(compared: Comparison, files: Sequence[str]) -> Iterator[Section]:
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
    known = [(case.name, case.result.excerpt) for case in compared.cases]
    drawn = [(name, own) for name, own in known if own and own.roles and own.end > 0.0]
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
    if any(case.result.get("curve") for case in compared.cases):
        yield Section(name="learning", title="Learning", drawing=element(compared.plot()))
    given = [f"{name}\n{inputs.told(own)}" for name, own in compared.inputs.items()]
    yield inputs.section(Inputs(), files, given)
