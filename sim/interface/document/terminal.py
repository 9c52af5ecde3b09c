"""A document as text of a terminal: columns aligned, bars of block characters."""

from collections.abc import Iterable, Sequence
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


def text(document: Document) -> str:
    """The title above the first nodes, then a block for each section, blank lines between."""
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
    if not table.shares:
        return aligned(table.rows, headed=table.headed)
    width = max(map(len, table.rows))
    barred = [(*row, *[""] * (width - len(row)), bar(share or 0.0)) for row, share, _ in table.body]
    return aligned([*table.rows[: int(table.headed)], *barred], headed=table.headed)


def aligned(rows: Iterable[Cells], *, headed: bool = False) -> str:
    """Rows in columns: names and notes to the left, figures to the right, as is their head."""
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
