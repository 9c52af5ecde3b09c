"""A document as Markdown with pipe tables. Text is escaped, so no name acts as markup."""

import re
from collections.abc import Iterator

from sim.interface.document.nodes import (
    Document,
    Figures,
    Link,
    Listing,
    Node,
    Picture,
    Section,
    Sentence,
    Table,
    figure_columns,
)
from sim.results.formatting import Cells

_MARKUP = re.compile(r"([\\`*_\[\]<>|#])")


def markdown(document: Document) -> str:
    """Return the title as a heading, with sections below."""
    head = [f"# {_escaped(document.title)}"] * bool(document.title)
    return "\n\n".join([*head, *_nodes(document.nodes, 2)]) + "\n"


def _nodes(nodes: tuple[Node, ...], depth: int) -> Iterator[str]:
    for node in nodes:
        match node:
            case Sentence():
                yield _escaped(node.marked)
            case Figures():
                yield _table(Table(rows=[figure.cells for figure in node.figures]))
            case Table():
                yield from filter(None, [_escaped(node.caption), _table(node)])
            case Listing():
                yield f"```\n{node.text}\n```"
            case Picture(says=says, file=file):
                yield from [f"![{_escaped(says)}]({file})"] * bool(file)
            case Section():
                yield from [f"{'#' * depth} {_escaped(node.title)}"] * bool(node.title)
                yield from _nodes(node.nodes, depth + 1)


def _table(table: Table) -> str:
    body = [row for row, _, _ in table.body]
    right = figure_columns(body)
    width = max(map(len, table.rows), default=0)
    head = table.rows[0] if table.headed else ("",) * width
    rules = ("---:" if to_right else "---" for to_right in right)
    return "\n".join([_row(head, width), _row((*rules,), width), *(_row(r, width) for r in body)])


def _row(row: Cells, width: int) -> str:
    cells = [*map(_cell, row), *[""] * (width - len(row))]
    return f"| {' | '.join(cells)} |"


def _cell(cell: str) -> str:
    if isinstance(cell, Link):
        return f"[{_escaped(cell)}]({cell.target})"
    return cell if set(cell) <= {"-", ":"} else _escaped(cell)


def _escaped(text: str) -> str:
    r"""Return a text in a line, with Markdown's special characters escaped.

    >>> _escaped("<b>a|b_c</b>")
    '\\<b\\>a\\|b\\_c\\</b\\>'
    """
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))
