"""A figure as a picture file, PNG, SVG or PDF: the same bytes for the same figure."""

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

# Okabe and Ito 2008: told apart by colour-blind readers too.
PALETTE = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442",
)  # fmt: skip

_PAGE = 1000  # pixels of a notebook's page
_FINE = 100  # dots an inch
_COLOURS = 256
_COLUMN = 5.0  # inches of a column of a journal, at most
_PRINTED = 7.0  # points of text in a column of a journal, at most
_LEAST = 0.6  # of the height, which text needs
_LINE = 0.17  # inches of a line of a legend
_SHORT = 20  # letters of a name that has another beside it
_SLACK = 0.9  # of the letters that fit into a line in the mean
_PANEL = 2.6  # inches of a panel below others, at most
_UNSTABLE = {"png": ("Software",), "svg": ("Date",), "pdf": ("CreationDate", "Producer", "Creator")}


class Figure(sheets.Figure):
    """A figure that notebooks show, no wider than their page, in few colours to stay small.
    `narrow` draws it for a column of a journal, where that is not the same figure in small."""

    narrow: Callable[[], sheets.Figure] | None = None
    _legend: tuple[tuple[Any, ...], dict[str, Any]] | None = None

    def legend(self, *args: Any, **kwargs: Any) -> Legend:
        """The legend of matplotlib, which `fit` may draw again with fewer columns."""
        self._legend = args, kwargs
        return super().legend(*args, **kwargs)

    def fit(self, width: float) -> None:
        """Give the figure this width (inches), with text that can be read in print.

        Panels beside one another come to stand below one another in a column of a journal. Text
        shrinks less than the figure, so the height shrinks less than the width.
        """
        before, height = self.get_size_inches()
        places = {axes: axes.get_subplotspec() for axes in self.axes}
        panels = [axes for axes, place in places.items() if place is not None]
        grids = {place.get_gridspec() for place in places.values() if place is not None}
        rows, columns = grids.pop().get_geometry() if len(grids) == 1 else (0, 0)
        shrunk = max(width / before, _LEAST)
        if width < _COLUMN and rows == 1 and columns == len(panels) > 1:
            below = self.add_gridspec(columns, 1)
            for number, axes in enumerate(panels):
                axes.set_subplotspec(below[number])
            height, shrunk = min(height, _PANEL) * columns, 1.0
        self.set_size_inches(width, height * min(shrunk, 1.0))
        for text in self.findobj(Text):
            text.set_fontsize(min(text.get_fontsize(), _PRINTED))
        if width < _COLUMN:
            lines = sum(map(_column, panels))
            self.set_size_inches(width, self.get_figheight() + _LINE * lines)
        self._fit_legend()
        self._wrap()

    def _wrap(self) -> None:
        """Break titles and names of axes that are wider than the figure into lines."""
        self.draw_without_rendering()
        own = [] if self._suptitle is None else [self._suptitle]  # type: ignore[attr-defined]
        for axes in self.axes:
            own += [axes.title, axes._left_title, axes._right_title, axes.xaxis.label]  # type: ignore[attr-defined]
        for text in own:
            box = text.get_window_extent()
            room = min(1.0, _room(text, self.bbox.width) / max(box.width, 1.0))
            longest = max(map(len, text.get_text().split("\n")))
            if room < 1.0:
                text.set_text(fill(text.get_text(), max(int(_SLACK * longest * room), 1)))

    def _fit_legend(self) -> None:
        """Draw the legend of the figure with as many columns as fit beside one another."""
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
    """The widest that a text can be (pixels) within a figure of a `width`, where it stands."""
    box, place = text.get_window_extent(), text.get_horizontalalignment()
    left, right = float(box.x0), float(box.x1)
    if place == "left":
        return width - left
    return right if place == "right" else min(left + right, 2 * width - left - right)


def _column(axes: Axes) -> int:
    """Fewer ticks, and the legend below the axes instead of beside or in them; its lines."""
    if isinstance(axes.xaxis.get_major_locator(), MaxNLocator):
        axes.locator_params(axis="x", nbins=4)
    legend, figure = axes.get_legend(), axes.get_figure()
    if legend is None or figure is None:
        return 0
    legend.set_in_layout(False)
    figure.draw_without_rendering()  # type: ignore[union-attr]
    decorated = axes.get_tightbbox()
    assert decorated is not None
    below = (decorated.y0 - axes.bbox.y0) / figure.dpi  # of ticks and the name, inches
    handles, names = legend.legend_handles, [text.get_text() for text in legend.get_texts()]
    columns = 2 if max(map(len, names)) <= _SHORT else 1
    axes.legend(
        [one for one in handles if one is not None], names, ncols=columns, frameon=False,
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
    """Write a PNG, SVG or PDF file, whole or not at all, of a `width` (inches) if it is given.

    Raises `InputError` where the file cannot be written or its ending is another.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        fault = "is neither .png, .svg nor .pdf"
        raise InputError(str(path), fault, "end the name in .png, .svg or .pdf")
    if width is not None:
        narrow = getattr(figure, "narrow", None)
        figure = narrow() if narrow and width < _COLUMN else figure
        assert isinstance(figure, Figure)
        figure.fit(width)
    with atomic_write(path) as part:
        part.write_bytes(rendered(figure, suffix.removeprefix(".")))


def rendered(figure: sheets.Figure, kind: str = "png", *, dpi: int = 150) -> bytes:
    """The bytes of a "png", "svg" or "pdf" file, with its title for those who cannot see it."""
    buffer = BytesIO()
    title = {"Title": figure.get_suptitle()} if figure.get_suptitle() else {}
    metadata: dict[str, Any] = {**title, **dict.fromkeys(_UNSTABLE[kind])}
    with mpl.rc_context({"svg.hashsalt": "sim", "svg.fonttype": "none"}):
        figure.savefig(buffer, format=kind, dpi=dpi, metadata=metadata)
    return buffer.getvalue()
