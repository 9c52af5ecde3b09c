"""The nodes that a page has beyond those of every document: charts to zoom, a drawing, sliders."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sim.analysis.explanation.what_if import Knob
from sim.interface.document.nodes import Document, Section


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A figure that can be zoomed: `says` is what it shows for those who do not see it, `legend` a
    colour for every meaning. `moves` has the buttons that move all charts on its axis."""

    name: str
    figure: Any
    says: str
    legend: Mapping[str, str] = field(default_factory=dict)
    moves: bool = True


@dataclass(frozen=True, slots=True)
class Drawing:
    """SVG."""

    svg: str


@dataclass(frozen=True, slots=True)
class Sliders:
    """A slider for each knob; the page looks up the answers in its columns."""

    knobs: Sequence[Knob]


PageNode = Any  # a node of `interface.document`, or one of the above


def paged(title: str, *nodes: PageNode | None, name: str) -> Section:
    """A section of a page, of the nodes that are there."""
    return Section(title, tuple(node for node in nodes if node is not None), name)


def charts(document: Document) -> Iterator[Chart]:
    """Every chart of a page."""
    for part in document.nodes:
        if isinstance(part, Section):
            inner: Sequence[PageNode] = part.nodes
            yield from (node for node in inner if isinstance(node, Chart))
