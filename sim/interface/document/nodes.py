"""The nodes of a document: sentences, key figures, tables, listings, pictures and sections."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Union

from sim.config.dataclass import dataclass
from sim.results.formatting import Cells


class Link(str):
    """A cell that leads to `target`: a file beside the document, or an address."""

    __slots__ = ("target",)
    target: str

    def __new__(cls, text: str, target: str) -> "Link":
        link = super().__new__(cls, text)
        link.target = target
        return link


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, or a few. A `warning` or `note` has that word before it, an `aside` is small."""

    text: str
    tone: Literal["plain", "note", "warning", "aside"] = "plain"

    @property
    def marked(self) -> str:
        """The text after its mark, such as "warning: ..."."""
        return f"{self.tone}: {self.text}" if self.tone in ("note", "warning") else self.text


@dataclass(frozen=True, slots=True)
class Figure:
    """A key figure: its name, the number as text, a note, and the number's path in the answer's
    JSON (`key`)."""

    title: str
    shown: str
    note: str = ""
    key: str = ""

    @property
    def cells(self) -> Cells:
        return (self.title, self.shown, self.note)


@dataclass(frozen=True, slots=True)
class Figures:
    """Key figures, the most important first."""

    figures: tuple[Figure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of cells; the first row is a head if `headed`. `shares` (0 to 1) are the lengths of bars
    behind the first body rows. `keys` are paths in the answer's JSON: they lead to the numbers in
    the second cells of these rows. If `width` is not 0, a terminal wraps the last column to lines
    of `width` characters."""

    rows: Sequence[Cells]
    caption: str = ""
    headed: bool = False
    shares: Sequence[float] = ()
    keys: Sequence[str] = ()
    width: int = 0

    @property
    def body(self) -> Sequence[tuple[Cells, float | None, str]]:
        """Every row except the head, with its share and its key."""
        rows = self.rows[int(self.headed) :]
        shares = [*self.shares, *[None] * len(rows)]
        keys = [*self.keys, *[""] * len(rows)]
        return list(zip(rows, shares, keys, strict=False))


@dataclass(frozen=True, slots=True)
class Listing:
    """Text whose line breaks count, such as a file; `title` is its name."""

    text: str
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A drawing. `draw` returns the figure that notebooks show. `says` describes the picture to
    readers who do not see it. `file` is the picture's file for documents that only link it."""

    says: str
    draw: Callable[[], Any] | None = None
    file: str = ""


Node = Union[Sentence, Figures, Table, Listing, Picture, "Section"]


@dataclass(frozen=True, slots=True)
class Section:
    """Nodes under a title; `name` is the anchor of the section on a page."""

    title: str
    nodes: tuple[Node, ...] = ()
    name: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """A title and nodes; `line` is a summary in one line (empty: the title is the summary)."""

    title: str
    nodes: tuple[Node, ...]
    line: str = ""


def document(title: str, *nodes: Node | None, line: str = "") -> Document:
    """Return a document of the nodes that are not None."""
    return Document(title, _present(nodes), line)


def section(title: str, *nodes: Node | None, name: str = "") -> Section:
    """Return a section of the nodes that are not None."""
    return Section(title, _present(nodes), name)


def table(rows: Iterable[Cells], head: Cells = (), *, caption: str = "", width: int = 0) -> Table:
    """Return a table of rows, under a head if one is given."""
    whole = [head, *rows] if head else list(rows)
    return Table(rows=whole, caption=caption, headed=bool(head), width=width)


def warnings(texts: Iterable[str]) -> Iterable[Sentence]:
    """Return a warning for each text."""
    return (Sentence(text, "warning") for text in texts)


def _present(nodes: Iterable[Node | None]) -> tuple[Node, ...]:
    return tuple(node for node in nodes if node is not None)


_LONGEST = 40  # characters of the longest cell that counts as a number


def figure_columns(rows: Sequence[Cells]) -> list[bool]:
    """For each column, say whether to align it right. A column is aligned right if most of its
    cells are numbers and it is not the first. `rows` have no head."""
    columns = max(map(len, rows), default=0)
    return [bool(i) and _mostly([row[i] for row in rows if len(row) > i]) for i in range(columns)]


def _mostly(cells: Sequence[str]) -> bool:
    known = [cell for cell in cells if cell.strip("- ")]
    return 2 * sum(map(_is_figure, known)) > len(known)


def _is_figure(cell: str) -> bool:
    """Whether a cell is a number with its unit or bounds; sentences are longer."""
    short = len(cell) <= _LONGEST and not cell.endswith(("/s", "GPU"))
    return short and cell.lstrip("+-x ")[:1].isdigit()
