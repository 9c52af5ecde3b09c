"""A figure as a picture file, PNG, SVG or PDF: the same bytes for the same figure."""

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import figure as sheets
from matplotlib.text import Text

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
_UNSTABLE = {"png": ("Software",), "svg": ("Date",), "pdf": ("CreationDate", "Producer", "Creator")}


class Figure(sheets.Figure):
    """A figure that notebooks show, no wider than their page, in few colours to stay small.
    `narrow` draws it for a column of a journal, where that is not the same figure in small."""

    narrow: Callable[[], sheets.Figure] | None = None

    def _repr_png_(self) -> bytes:
        return _small(self)


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
        figure.set_size_inches(width, width / figure.get_figwidth() * figure.get_figheight())
        for text in figure.findobj(Text):
            text.set_fontsize(min(text.get_fontsize(), _PRINTED))
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
