"""Write a figure as PNG, SVG or PDF, with the same bytes for the same figure."""

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from textwrap import fill
from typing import Any

import matplotlib as mpl
from matplotlib import figure as sheets
from matplotlib.axes import Axes
from matplotlib.legend import Legend
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import ScaledTranslation

from sim.config.errors import InputError
from sim.config.files import atomic_write
from sim.interface.plots import SUFFIXES

# Okabe and Ito 2008: colour-blind readers, too, can tell these colours apart.
PALETTE = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442",
)  # fmt: skip

_PAGE = 1000  # pixels of a notebook's width
_FINE = 100  # dots an inch in notebooks
_COLOURS = 256
_COLUMN = 5.0  # inches; narrower pictures are for a journal's column
_PRINTED = 7.0  # points of the largest text in print
_DRAWN = 5.5  # points of text in a drawing of such a column
_LEAST = 0.6  # the least share of the height that must remain for the text to have room
_LINE = 0.17  # inches of a legend's line
_SHORT = 20  # letters of the longest name in a legend of two columns
_WIDEST = 0.95  # share of its room that a text may fill; other file types have wider letters
_SLACK = 0.9  # a line holds this share of the letters that would fit if all had the mean width
_PANEL = 2.6  # inches of the highest panel below others
_UNSTABLE = {"png": ("Software",), "svg": ("Date",), "pdf": ("CreationDate", "Producer", "Creator")}


class Figure(sheets.Figure):
    """A figure that notebooks show. It is no wider than their page, and has few colours to stay
    small. If shrinking does not suffice for widths below `least` (inches), `narrow` draws another
    version."""

    narrow: "Callable[[], Figure] | None" = None
    least: float = _COLUMN
    _legend: tuple[tuple[Any, ...], dict[str, Any]] | None = None

    def legend(self, *args: Any, **kwargs: Any) -> Legend:
        """Draw matplotlib's legend; `fit` may draw it again with fewer columns."""
        self._legend = args, kwargs
        return super().legend(*args, **kwargs)

    def fitted(self, width: float) -> "Figure":
        """This figure, or its `narrow` form, with a width (inches)."""
        figure = self.narrow() if self.narrow and width < self.least else self
        figure.fit(width)
        return figure

    def fit(self, width: float) -> None:
        """Give the figure this width (inches), with text that can be read in print.

        For a journal's column, panels side by side are moved below one another. Text shrinks less
        than the figure, so the height shrinks less than the width.
        """
        before, height = self.get_size_inches()
        places = {axes: place for axes in self.axes if (place := axes.get_subplotspec())}
        grids = {place.get_gridspec() for place in places.values()}
        rows, columns = grids.pop().get_geometry() if len(grids) == 1 else (1, 1)
        shrunk = max(width / before, _LEAST)
        if width < _COLUMN and columns > 1:
            order = sorted(set(places.values()), key=lambda place: place.num1)
            below = self.add_gridspec(len(order), 1)
            for axes, place in places.items():  # twins share a place
                axes.set_subplotspec(below[order.index(place)])
            height, shrunk = min(height / rows, _PANEL) * len(order), 1.0
        self.set_size_inches(width, height * min(shrunk, 1.0))
        for text in self.findobj(Text):
            text.set_fontsize(min(text.get_fontsize(), _PRINTED))
        self._wrap()
        if width < _COLUMN:
            for text in (text for axes in self.axes if not axes.axison for text in axes.texts):
                text.set_fontsize(_DRAWN)
            lines = sum(_column(axes, self) for axes in places)
            self.set_size_inches(width, self.get_figheight() + _LINE * lines)
        self._fit_legend()
        self._wrap()

    def _wrap(self) -> None:
        """Break titles and axis labels that are wider than the figure into lines."""
        self.draw_without_rendering()
        texts = [] if self._suptitle is None else [self._suptitle]  # type: ignore[attr-defined]
        for axes in self.axes:
            texts += [axes.title, axes._left_title, axes._right_title, axes.xaxis.label]  # type: ignore[attr-defined]
        for text in texts:
            box = text.get_window_extent()
            room = min(1.0, _WIDEST * _room(text, self.bbox.width) / max(box.width, 1.0))
            longest = max(map(len, text.get_text().split("\n")))
            if room < 1.0:
                text.set_text(fill(text.get_text(), max(int(_SLACK * longest * room), 1)))

    def _fit_legend(self) -> None:
        """Draw the figure's legend with as many columns as fit."""
        if self._legend is None:
            return
        args, kwargs = self._legend
        for columns in range(kwargs.get("ncols", 1), 0, -1):
            for drawn in self.legends:
                drawn.remove()
            asked = {**kwargs, "ncols": columns, "fontsize": _PRINTED}
            legend = super().legend(*args, **asked)
            self.draw_without_rendering()
            if legend.get_window_extent().width <= self.bbox.width:
                return

    def _repr_png_(self) -> bytes:
        return _small(self)


def _room(text: Text, width: float) -> float:
    """Return the largest width (pixels) that a text at this place can have within a figure of this
    `width`."""
    box, place = text.get_window_extent(), text.get_horizontalalignment()
    left, right = float(box.x0), float(box.x1)
    if place == "left":
        return width - left
    return right if place == "right" else min(left + right, 2 * width - left - right)


def _column(axes: Axes, figure: sheets.Figure) -> int:
    """Reduce the ticks, and move the legend below the axes. Return the legend's number of lines."""
    if isinstance(axes.xaxis.get_major_locator(), MaxNLocator):
        axes.locator_params(axis="x", nbins=4)
    legend = axes.get_legend()
    if legend is None:
        return 0
    legend.set_in_layout(False)
    figure.draw_without_rendering()
    decorated = axes.get_tightbbox()
    assert decorated is not None
    below = (decorated.y0 - axes.bbox.y0) / figure.dpi  # inches of ticks and label
    handles, names = legend.legend_handles, [text.get_text() for text in legend.get_texts()]
    columns = 2 if max(map(len, names)) <= _SHORT else 1
    axes.legend(
        [handle for handle in handles if handle is not None], names, ncols=columns, frameon=False,
        fontsize=_PRINTED, loc="upper left", bbox_to_anchor=(0.0, 0.0), borderaxespad=0.2,
        bbox_transform=axes.transAxes + ScaledTranslation(0.0, below, figure.dpi_scale_trans),
    )  # fmt: skip
    return -(-len(names) // columns)


def _small(figure: sheets.Figure) -> bytes:
    from PIL import Image

    whole = BytesIO(rendered(figure, dpi=min(_FINE, int(_PAGE / figure.get_figwidth()))))
    with Image.open(whole) as image:
        few = image.convert("RGB").quantize(_COLOURS, method=Image.Quantize.MEDIANCUT)
    small = BytesIO()
    few.save(small, "PNG", optimize=True)
    return small.getvalue()


def save(figure: sheets.Figure, path: Path | str, width: float | None = None) -> None:
    """Write a PNG, SVG or PDF file, whole or not at all; `width` is in inches.

    Raises `InputError` if the file cannot be written or has another ending.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        fault = "is neither .png, .svg nor .pdf"
        raise InputError(str(path), fault, "end the name in .png, .svg or .pdf")
    if width is not None:
        figure = figure.fitted(width) if isinstance(figure, Figure) else _scaled(figure, width)
    with atomic_write(path) as part:
        part.write_bytes(rendered(figure, suffix.removeprefix(".")))


def _scaled(figure: sheets.Figure, width: float) -> sheets.Figure:
    """Return a figure that was not made here, with another size."""
    before, height = figure.get_size_inches()
    figure.set_size_inches(width, height * width / before)
    return figure


def rendered(figure: sheets.Figure, kind: str = "png", *, dpi: int = 150) -> bytes:
    """Return the bytes of a "png", "svg" or "pdf" file, with its title for screen readers."""
    buffer = BytesIO()
    title = {"Title": figure.get_suptitle()} if figure.get_suptitle() else {}
    metadata: dict[str, Any] = {**title, **dict.fromkeys(_UNSTABLE[kind])}
    with mpl.rc_context({"svg.hashsalt": "sim", "svg.fonttype": "none"}):
        figure.savefig(buffer, format=kind, dpi=dpi, metadata=metadata)
    return buffer.getvalue()
