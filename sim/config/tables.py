"""Tables of measurements: CSV files in which every row must be whole."""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from sim.config import reads, spoken
from sim.config.errors import InputError


class Row(NamedTuple):
    """The cells of a row by their headings, and the place of the row: "FILE, line 7"."""

    where: str
    cells: dict[str, str]


def rows(
    path: Path,
    *,
    place: str = "",
    headings: Sequence[str] = (),
    remedy: str = "take the whole file",
) -> Iterator[Row]:
    """The rows of a CSV file with headings, in order; `place` is the file's name in messages.

    Raises `InputError` for a file that is not a table, has other headings than `headings`, or is
    cut short. A file is cut short if a row has fewer or more cells than headings, or if the last
    row has no line end.
    """
    place = place or str(path)
    text = reads.text(path, where=place)
    if not text.endswith("\n"):
        where = f"{place}, line {text.count(chr(10)) + 1}"
        raise InputError(where, "is cut short (no end of the line)", remedy)
    reader = csv.reader(StringIO(text), strict=True)
    try:
        found = next(reader, [])
        if headings and found != list(headings):
            raise InputError(f"{place}, line 1", "has other headings", ",".join(headings))
        for cells in reader:
            if len(cells) != len(found):
                raise csv.Error(f"{len(cells)} cells below {len(found)} headings")
            yield Row(f"{place}, line {reader.line_num}", dict(zip(found, cells, strict=True)))
    except csv.Error as error:
        where = f"{place}, line {reader.line_num}"
        raise InputError(where, f"is cut short ({error})", remedy) from None


def without_torn_end(path: Path, *, heading: str, mend: bool) -> str:
    """The whole lines of a table; the process that appended to it may have been killed. With `mend`
    the file is cut to its whole lines. If there are none, the result is the `heading`."""
    text = reads.text(path, errors="replace")
    whole = text[: text.rfind("\n") + 1] or heading
    if mend and whole != text:
        path.write_text(whole, encoding="utf-8")
    return whole


def only(found: Iterable[Row], wanted: Mapping[str, str]) -> Iterator[Row]:
    """The rows whose cells equal the `wanted` values, by heading. With "!" after the heading, the
    cells must differ.

    Raises `InputError` for headings that the table does not have, and where no row is left.

    >>> given = [Row("t.csv, line 2", {"device": "a40"}), Row("t.csv, line 3", {"device": "a100"})]
    >>> [row.where for row in only(given, {"device": "a100"})]
    ['t.csv, line 3']
    """
    where, left = "", 0
    for row in found:
        where = row.where
        if all(_agrees(row, heading, value) for heading, value in wanted.items()):
            left += 1
            yield row
    if wanted and not left:
        rows_of = ", ".join(f"{heading}={value}" for heading, value in wanted.items())
        place = where.partition(",")[0] or "the table"
        raise InputError(place, f"has no row of {rows_of}", "check --rows")


def _agrees(row: Row, heading: str, value: str) -> bool:
    name = heading.removesuffix("!")
    if name not in row.cells:
        raise InputError(row.where, f"has no column {name!r}", f"known: {', '.join(row.cells)}")
    return (row.cells[name] == value) == (name == heading)


def number(row: Row, headings: Iterable[str]) -> float | None:
    """The positive number in the first of these columns that the row fills; None if it fills none.
    Raises `InputError` for a cell that is no positive number."""
    for heading in headings:
        if cell := row.cells.get(heading, ""):
            try:
                return spoken.number_in(cell)
            except ValueError as error:
                fault = f"{heading} = {error}"
                raise InputError(row.where, fault, "correct or remove the line") from None
    return None
