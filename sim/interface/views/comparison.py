"""A comparison: the table, where differences come from, which job is best and why."""

from collections.abc import Iterator

from sim.analysis.comparison.comparison import Comparison
from sim.interface.document.nodes import (
    Document,
    Listing,
    Picture,
    Section,
    Sentence,
    document,
    section,
    table,
)
from sim.results.formatting import Cells


def view(compared: Comparison) -> Document:
    """The full names of short names, the table, differences, and what to know of the jobs."""
    asked = "\n".join(f"{name}: {asked}" for name, asked in compared.asked.items())
    picture = Picture(says="The jobs to one scale", draw=compared.plot)
    return document(
        "",
        Listing(asked) if asked else None,
        side_by_side(compared),
        *differences(compared),
        Sentence(compared.reason),
        picture,
        *(Sentence(note, "note") for note in compared.notes),
        line=compared.title,
    )


def side_by_side(compared: Comparison) -> Section:
    """A row for each job."""
    head, *rows = compared.table
    return section(compared.title, table(rows, head), name="table")


def differences(compared: Comparison) -> Iterator[Section]:
    """Where differences come from, each way of telling them once: without pipelines the critical
    path is the step of one rank."""
    head = ("", *compared.names)
    told: list[list[Cells]] = []
    for part in compared.parts:
        rows = list(part.rows)
        names = {name for seconds in part.seconds for name in seconds}
        if part.moves and rows not in told and len(names) > 1:
            told.append(rows)
            yield section(f"{part.title}, against {compared.names[0]}", table(rows, head))
