"""Tables of measurements: CSV files of which every row must be whole."""

import csv
from collections.abc import Iterator, Sequence
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from sim.config.errors import InputError


class Row(NamedTuple):
    """The cells of a row by their headings, and where it stands: "FILE, line 7"."""

    where: str
    cells: dict[str, str]


def rows(
    path: Path,
    *,
    place: str = "",
    headings: Sequence[str] = (),
    remedy: str = "take the whole file",
) -> Iterator[Row]:
    """The rows of a CSV file with headings, in order; `place` is what messages call it.

    Raises `InputError` for a file that cannot be read as a table, that has other `headings` than
    these, or that is cut short: within a row, which then has other cells than there are headings,
    or at a row's end, which no end of a line follows.
    """
    place = place or str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise InputError(place, "cannot be read as a table", "check the path") from None
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
