"""A document as terminal text, with aligned columns and bars of block characters."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from sim.interface.document.nodes import (
    Document,
    Figures,
    Listing,
    Node,
    Picture,
    Section,
    Sentence,
    Table,
    figure_columns,
)
from sim.results.formatting import Cells, bar

_NARROWEST = 6  # characters of the narrowest wrapped column


def text(document: Document) -> str:
    """Return the title above the first nodes, then a block for each section. Blank lines separate
    the blocks."""
    blocks: list[list[str]] = [[document.title] if document.title else []]
    for is_section, group in groupby(document.nodes, lambda node: isinstance(node, Section)):
        if is_section:
            blocks += (_section(node) for node in group)
        elif len(blocks) == 1:
            blocks[0] += map(_node, group)
        else:
            blocks.append(list(map(_node, group)))
    return "\n\n".join("\n".join(filter(None, lines)) for lines in blocks if any(lines))


def _section(node: Node) -> list[str]:
    assert isinstance(node, Section)
    return [node.title, *map(_node, node.nodes)]


def _node(node: Node) -> str:
    match node:
        case Sentence():
            return node.marked
        case Figures():
            return aligned([figure.cells for figure in node.figures])
        case Table():
            return "\n".join(filter(None, [node.caption, _table(node)]))
        case Listing():
            return "\n".join(filter(None, [node.title, node.text]))
        case Section():
            return "\n".join(_section(node))
        case Picture():
            return ""


def _table(table: Table) -> str:
    if table.width:
        return aligned(_wrapped(table.rows, table.width), headed=table.headed)
    if not table.shares:
        return aligned(table.rows, headed=table.headed)
    width = max(map(len, table.rows))
    barred = [(*row, *[""] * (width - len(row)), bar(share or 0.0)) for row, share, _ in table.body]
    return aligned([*table.rows[: int(table.headed)], *barred], headed=table.headed)


def _wrapped(rows: Sequence[Cells], width: int) -> Iterator[Cells]:
    """Yield the rows; the text of a long last cell continues in further rows.

    >>> list(_wrapped([("a", "to be or not")], 12))
    [('a', 'to be'), ('', 'or not')]
    """
    others = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    left = max(width - sum(others) - 2 * len(rows[0]), min(width, _NARROWEST))
    for *cells, last in rows:
        first, *more = textwrap.wrap(
            last, left, break_long_words=False, break_on_hyphens=False
        ) or [""]
        yield (*cells, first)
        yield from (("",) * len(cells) + (line,) for line in more)


def aligned(rows: Iterable[Cells], *, headed: bool = False) -> str:
    """Return rows in columns. Names and notes are aligned left, figures and their heads right."""
    lines = [tuple(map(str, row)) for row in rows]
    right = figure_columns(lines[1:] if headed and len(lines) > 1 else lines)
    count = max(map(len, lines), default=0)
    widths = [max(len(row[i]) for row in lines if len(row) > i) for i in range(count)]
    right += [False] * (count - len(right))
    return "\n".join(_line(row, widths, right) for row in lines)


def _line(row: Cells, widths: Sequence[int], right: Sequence[bool]) -> str:
    cells = [
        cell.rjust(width) if to_right else cell.ljust(width)
        for cell, width, to_right in zip(row, widths, right, strict=False)
    ]
    return ("  " + "  ".join(cells)).replace("  (", " (").rstrip()
