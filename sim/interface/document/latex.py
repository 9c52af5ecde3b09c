r"""A document as LaTeX, to be `\input` into a paper; tables need the package booktabs."""

from collections.abc import Iterator

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
from sim.results.formatting import Cells

_SPECIAL = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "$": r"\$", "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
    **{char: f"\\{char}" for char in "&%#_{}"},
}  # fmt: skip
_LEVELS = ("section", "subsection", "subsubsection", "paragraph")


def latex(document: Document) -> str:
    """Return the title as a section, with subsections below."""
    head = "% needs \\usepackage{booktabs}"
    head += f"\n\\section{{{_escaped(document.title)}}}" * bool(document.title)
    return "\n\n".join([head, *_nodes(document.nodes, 1)]) + "\n"


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
                yield f"\\begin{{verbatim}}\n{node.text}\n\\end{{verbatim}}"
            case Picture(says=says, file=file):
                yield from [f"\\includegraphics{{{file}}} % {says}"] * bool(file)
            case Section():
                level = _LEVELS[min(depth, len(_LEVELS) - 1)]
                yield from [f"\\{level}{{{_escaped(node.title)}}}"] * bool(node.title)
                yield from _nodes(node.nodes, depth + 1)


def _table(table: Table) -> str:
    body = [row for row, _, _ in table.body]
    columns = "".join("r" if to_right else "l" for to_right in figure_columns(body))
    width = max(map(len, table.rows), default=0)
    head = [_row(table.rows[0], width), "\\midrule"] if table.headed else []
    inner = "\n".join([*head, *(_row(row, width) for row in body)])
    return f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{inner}\n\\bottomrule\n\\end{{tabular}}"


def _row(row: Cells, width: int) -> str:
    cells = [*map(_escaped, row), *[""] * (width - len(row))]
    return f"{' & '.join(cells)} \\\\"


def _escaped(text: str) -> str:
    r"""Return a text with LaTeX's special characters escaped.

    >>> _escaped("39.4 % of a_b")
    '39.4 \\% of a\\_b'
    """
    return "".join(_SPECIAL.get(char, char) for char in text)
