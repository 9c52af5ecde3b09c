"""Tables for people, as aligned text and as HTML."""

from collections.abc import Iterable, Sequence
from html import escape

Cells = tuple[str, ...]

_LONGEST = 40  # characters of a figure


def aligned(rows: Iterable[Cells], *, headed: bool = False) -> str:
    """Columns aligned: the first to the left, figures to the right, bars and notes to the left;
    the names of a head as what stands below them."""
    lines = list(rows)
    columns = max(map(len, lines), default=0)
    widths = [
        max((len(row[i]) for row in lines if len(row) > i), default=0) for i in range(columns)
    ]
    below = lines[1] if headed and len(lines) > 1 else ()
    head = [_line(lines[0], widths, below)] if below else []
    return "\n".join([*head, *(_line(row, widths, row) for row in lines[len(head) :])])


def _line(row: Cells, widths: Sequence[int], like: Cells) -> str:
    cells = [
        cell.rjust(width) if 0 < i < len(like) and _is_figure(like[i]) else cell.ljust(width)
        for i, (cell, width) in enumerate(zip(row, widths, strict=False))
    ]
    return ("  " + "  ".join(cells)).replace("  (", " (").rstrip()


def _is_figure(cell: str) -> bool:
    """Whether a cell is a number with its unit or bounds; sentences are longer."""
    short = len(cell) <= _LONGEST and not cell.endswith(("/s", "GPU"))
    return short and cell.lstrip("+-")[:1].isdigit()


def html_table(rows: Iterable[Cells], shares: Sequence[float] = ()) -> str:
    """An HTML table; `shares` draw a bar behind the first rows."""
    style = "padding:1px 12px 1px 4px;border:none;"
    lines = []
    for i, row in enumerate(rows):
        cells = [
            f'<td style="{style}text-align:{"right" if _is_figure(text) and j else "left"}">'
            f"{escape(text)}</td>"
            for j, text in enumerate(row)
        ]
        if i < len(shares):
            width = round(180 * shares[i])
            stripe = f"background:#0072b2;height:0.7em;width:{width}px"
            cells.append(f'<td style="{style}"><div style="{stripe}"></div></td>')
        lines.append(f'<tr style="background:none">{"".join(cells)}</tr>')
    return f'<table style="margin:2px 0 8px 0">{"".join(lines)}</table>'


def preformatted(text: str) -> str:
    """A page of text as HTML."""
    return f"<pre>{escape(text)}</pre>"
