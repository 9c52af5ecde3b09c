"""What a page consists of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sim.analysis.explanation.what_if import Knob
from sim.results.tables import Cells


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of text, the first a head if `headed`; `shares` of 1 draw a bar behind the first rows.

    `keys` say for the first rows which number of the result's JSON their second cell shows.
    """

    caption: str
    rows: Sequence[Cells]
    headed: bool = False
    shares: Sequence[float] = ()
    keys: Sequence[str] = ()

    @property
    def body(self) -> Sequence[tuple[Cells, float | None, str]]:
        """Every row but the head, with its share and its key."""
        rows = list(self.rows)[int(self.headed) :]
        shares = [*self.shares, *[None] * len(rows)]
        keys = [*self.keys, *[""] * len(rows)]
        return list(zip(rows, shares, keys, strict=False))


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A figure that can be zoomed: `says` is what it shows for those who do not see it, `legend` a
    colour for every meaning."""

    name: str
    figure: Any
    says: str
    legend: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of the page. `text` stands above, `drawing` is SVG, `given` are aligned text, `files`
    names with contents, `sliders` what a table of columns answers (`explanation.what_if`)."""

    name: str
    title: str
    text: Sequence[str] = ()
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = ()
    drawing: str = ""
    sliders: Sequence[Knob] = ()
    given: Sequence[str] = ()
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number that a reader came for: what it is, as text, which key of the JSON, and a note."""

    title: str
    shown: str
    key: str
    note: str = ""
