"""A document as HTML for notebooks."""

from base64 import b64encode
from collections.abc import Iterator
from html import escape

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

_CELL = "padding:1px 12px 1px 4px;border:none;"
_BAR = 180  # pixels of the longest bar


def html(document: Document) -> str:
    """Return the title as a heading, then the nodes."""
    parts = [f"<h4>{escape(document.title)}</h4>", *map(_node, document.nodes)]
    return '<div style="line-height:1.4">' + "\n".join(parts) + "</div>"


def _node(node: Node) -> str:
    match node:
        case Sentence(said, "warning"):
            return f"<div>⚠ {escape(said)}</div>"
        case Sentence(said, "aside"):
            return f"<small>{escape(said)}</small>"
        case Sentence():
            return f"<div>{escape(node.marked)}</div>"
        case Figures():
            return _table(Table(rows=[figure.cells for figure in node.figures]))
        case Table():
            return _table(node)
        case Listing():
            return f"<pre>{escape(node.text)}</pre>"
        case Picture():
            return _drawn(node)
        case Section():
            head = [f"<b>{escape(node.title)}</b>"] * bool(node.title)
            return "\n".join([*head, *map(_node, node.nodes)])


def _drawn(picture: Picture) -> str:
    if picture.draw is None:
        return ""
    data = b64encode(picture.draw()._repr_png_()).decode()
    alt = escape(picture.says)
    return f'<img style="max-width:100%" alt="{alt}" src="data:image/png;base64,{data}">'


def _table(table: Table) -> str:
    right = figure_columns([row for row, _, _ in table.body])
    lines = [_row(row, right, "th") for row in table.rows[: int(table.headed)]]
    for row, share, _ in table.body:
        stripe = f"background:#0072b2;height:0.7em;width:{round(_BAR * (share or 0.0))}px"
        drawn = f'<td style="{_CELL}"><div style="{stripe}"></div></td>' * (share is not None)
        lines.append(_row(row, right, "td", drawn))
    caption = f"<caption>{escape(table.caption)}</caption>" * bool(table.caption)
    return f'<table style="margin:2px 0 8px 0">{caption}{"".join(lines)}</table>'


def _row(row: Cells, right: list[bool], tag: str, more: str = "") -> str:
    return f'<tr style="background:none">{"".join(_cells(row, right, tag))}{more}</tr>'


def _cells(row: Cells, right: list[bool], tag: str) -> Iterator[str]:
    for cell, to_right in zip(row, right, strict=False):
        side = "right" if to_right else "left"
        content = escape(cell)
        if isinstance(cell, Link):
            content = f'<a href="{escape(cell.target)}">{content}</a>'
        yield f'<{tag} style="{_CELL}text-align:{side}">{content}</{tag}>'
