"""Which columns of a table hold figures, for every renderer alike."""

from collections.abc import Sequence

from sim.results.formatting import Cells

_LONGEST = 40  # characters of a figure


def figure_columns(rows: Sequence[Cells]) -> list[bool]:
    """For each column but the first whether most of its cells are numbers: these are set to the
    right. `rows` have no head."""
    columns = max(map(len, rows), default=0)
    return [bool(i) and _mostly([row[i] for row in rows if len(row) > i]) for i in range(columns)]


def _mostly(cells: Sequence[str]) -> bool:
    known = [cell for cell in cells if cell.strip("- ")]
    return 2 * sum(map(_is_figure, known)) > len(known)


def _is_figure(cell: str) -> bool:
    """Whether a cell is a number with its unit or bounds; sentences are longer."""
    short = len(cell) <= _LONGEST and not cell.endswith(("/s", "GPU"))
    return short and cell.lstrip("+-x ")[:1].isdigit()
