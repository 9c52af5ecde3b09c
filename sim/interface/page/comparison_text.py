"""A comparison as a page of text."""

from collections.abc import Iterator, Sequence
from html import escape

from sim.analysis.comparison.comparison import Comparison
from sim.interface.plots import picture
from sim.results.tables import Cells, aligned, html_table


def text(compared: Comparison) -> str:
    """The table, where differences come from, which is best and why, and what to know of them."""
    pages = (f"{title}\n{aligned(rows, headed=True)}" for title, rows in _blocks(compared))
    said = "\n".join([compared.reason, *(f"note: {note}" for note in compared.notes)])
    return "\n\n".join([*_legend(compared), *pages, said])


def html(compared: Comparison) -> str:
    """The same for a notebook, with the picture."""
    shown = (f"<b>{escape(title)}</b>{html_table(rows)}" for title, rows in _blocks(compared))
    legend = "".join(f"<pre>{escape(lines)}</pre>" for lines in _legend(compared))
    drawn = picture.html(compared.plot())
    said = "".join(f"<p>{escape(line)}</p>" for line in (compared.reason, *compared.notes))
    return f"{legend}{''.join(shown)}{said}{drawn}"


def _legend(compared: Comparison) -> list[str]:
    """The full names of short names, where there are any."""
    lines = [f"{name}: {asked}" for name, asked in compared.asked.items()]
    return ["\n".join(lines)] if lines else []


def _blocks(compared: Comparison) -> Iterator[tuple[str, Sequence[Cells]]]:
    """The table, and where differences come from, each way of telling them once: without pipelines
    the critical path is one rank's step."""
    yield compared.title, compared.table
    told: list[list[Cells]] = []
    for own in compared.parts:
        rows = list(own.rows)
        if (
            own.moves
            and rows not in told
            and len({name for one in own.seconds for name in one}) > 1
        ):
            told.append(rows)
            head = ("", *compared.names)
            yield f"{own.title}, against {compared.names[0]}", [head, *rows]
