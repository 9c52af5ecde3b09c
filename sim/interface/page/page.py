"""The page as a single HTML file: Bokeh's library, the figures, the text and the numbers.

In addition to the nodes of every document, a page has charts to zoom, a drawing and sliders.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache
from typing import Any

from bokeh.document import Document as BokehDocument
from bokeh.resources import Resources
from jinja2 import Environment, PackageLoader, StrictUndefined

from sim.analysis.explanation.what_if import Knob
from sim.config.dataclass import dataclass
from sim.interface.document.nodes import Document, Section, Table, figure_columns


def html(
    document: Document,
    *,
    subtitle: str,
    numbers: Mapping[str, Any],
    columns: Mapping[str, Any] | None = None,
) -> str:
    """Return a page. `numbers` are the JSON that the command writes. `columns` has the answers that
    the page's sliders look up."""
    library = Resources(mode="inline", components=["bokeh"])  # no widgets: the page has HTML's own
    shown = list(charts(document))
    return (
        templates()
        .get_template("page.html")
        .render(
            document=document,
            subtitle=subtitle,
            numbers=_timeless(numbers),
            columns=columns,
            library="\n".join(library.js_raw) if shown else "",
            figures=embedded(shown),
            places=places(shown),
        )
    )


def _timeless(value: Any) -> Any:
    """Return numbers without the simulation's own wall time, so a repeated question gives the same
    page."""
    if isinstance(value, Mapping):
        return {key: _timeless(entry) for key, entry in value.items() if key != "wall_seconds"}
    return [_timeless(entry) for entry in value] if isinstance(value, list) else value


@cache
def templates() -> Environment:
    """Return the templates of pages. They escape all text, and an unknown name is an error."""
    found = Environment(
        loader=PackageLoader("sim.interface.page", "."),
        autoescape=True,
        undefined=StrictUndefined,
    )
    found.policies["json.dumps_kwargs"] = {}  # Bokeh reads definitions before references
    found.filters["kind"] = lambda node: type(node).__name__
    found.filters["right"] = _right
    return found


def _right(table: Table) -> list[bool]:
    """Return for each column whether it is aligned right."""
    columns = figure_columns([row for row, _, _ in table.body])
    return [*columns, *[False] * (max(map(len, table.rows), default=0) - len(columns))]


def fragment(nodes: Iterable["PageNode"], places: Mapping[str, str] | None = None) -> str:
    """Return nodes as HTML of a part of a page; `places` has the elements of their charts, by
    name."""
    shown = templates().get_template("nodes.html").module.shown  # type: ignore[attr-defined]
    return "".join(shown(node, places or {}) for node in nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A figure that can be zoomed. `says` describes the chart to readers who do not see it.
    `legend` has a colour for every meaning. If `moves`, the chart has the buttons that move all
    charts on its axis."""

    name: str
    figure: Any
    says: str
    legend: Mapping[str, str] = field(default_factory=dict)
    moves: bool = True


def places(charts: Iterable[Chart]) -> dict[str, str]:
    """Return the HTML elements in which `embedded` draws charts, by name."""
    return {chart.name: f'<div id="figure-{chart.name}"></div>' for chart in charts}


def embedded(charts: Sequence[Chart]) -> dict[str, Any]:
    """Return charts as arguments of `Bokeh.embed.embed_items`; {} without charts. Bokeh numbers its
    models over the life of a process; here the numbers of each page begin anew."""
    if not charts:
        return {}
    document = BokehDocument()
    for chart in charts:
        document.add_root(chart.figure)
    roots = {chart.figure.id: f"figure-{chart.name}" for chart in charts}
    item = {"docid": "charts", "roots": roots, "root_ids": [*roots]}
    written = json.dumps({"documents": {"charts": document.to_json(deferred=False)}, "item": item})
    numbers: dict[str, str] = {}
    for name in re.findall(r'"id": "(p\d+)"', written):
        numbers.setdefault(name, f"m{len(numbers)}")
    renamed = re.sub(r'"(p\d+)"', lambda found: f'"{numbers.get(found[1], found[1])}"', written)
    settled: dict[str, Any] = json.loads(renamed)
    return settled


@dataclass(frozen=True, slots=True)
class Drawing:
    """An SVG, and a description for readers who do not see it (`says`)."""

    svg: str
    says: str = "Drawing of the cluster; the table below has its numbers."


@dataclass(frozen=True, slots=True)
class Sliders:
    """A slider for each knob; the page looks up their answers in the `columns` of `html`."""

    knobs: Sequence[Knob]


PageNode = Any  # a node of `interface.document`, or a Chart, a Drawing or Sliders


def paged(title: str, *nodes: PageNode | None, name: str) -> Section:
    """Return a section of a page with the nodes that are not None."""
    return Section(title, tuple(node for node in nodes if node is not None), name)


def charts(document: Document) -> Iterator[Chart]:
    """Yield every chart of a page."""
    for part in document.nodes:
        if isinstance(part, Section):
            inner: Sequence[PageNode] = part.nodes
            yield from (node for node in inner if isinstance(node, Chart))
