"""Show a sweep: the keys that varied, and the most important figures."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from sim.analysis.sweeps.answer import Sweep
from sim.analysis.sweeps.table import WALL
from sim.config.readable import human_bytes, human_seconds
from sim.interface.document.nodes import Document, Sentence, document, table
from sim.results.formatting import figure, loss

if TYPE_CHECKING:
    import pandas as pd

_SHOWN: dict[str, Callable[[Any], str]] = {
    "time": human_seconds, "loss": loss, "staleness": "{:.2f}".format,
    "step_time_expected": human_seconds, "step_time_low": human_seconds,
    "step_time_high": human_seconds, "step_time": human_seconds,
    "samples.p99": human_seconds, "mfu": "{:.1%}".format, "bubble_fraction": "{:.1%}".format,
    "dollars_per_million_tokens": "{:.3g}".format, "memory.total": human_bytes, "reason": str,
}  # fmt: skip
_SEEDS = (
    "Figures are means over seeds; a spread is a standard deviation over seeds. A difference is "
    "the mean over equal seeds, against the first valid point, with its 90 % interval."
)
_LONGEST = 100  # characters of a cell that are printed


def view(sweep: Sweep) -> Document:
    """Show a row for each point."""
    frame = sweep.frame
    shown = [name for name in _SHOWN if name in frame.columns]
    if frame.attrs.get("units") or shown in ([], ["reason"]):  # a kind with figures of its own
        floats = (name for name in frame.columns if frame[name].dtype.kind == "f" and name != WALL)
        shown = [name for name in floats if not name.startswith("samples.")] + ["reason"]
    names = dict.fromkeys([*frame.attrs["varied"], *shown])
    columns = {name: list(_cells(frame, name)) for name in names if name in frame.columns}
    drawn = {key: cells for name in shown for key, cells in _of_seeds(frame, name)}
    seeds = Sentence(_SEEDS, "aside") if drawn else None
    columns |= drawn
    rows = zip(map(str, frame.index), *columns.values(), strict=True)
    line = f"{sweep.scenario} at {sweep.points} points, {sweep.valid} of them valid"
    return document("", table(rows, ("point", *columns)), seeds, line=line)


def _of_seeds(frame: "pd.DataFrame", name: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the columns that several seeds add to a figure."""
    if f"samples.{name}.runs" not in frame:
        return
    spread, by, low, high = (
        frame[f"samples.{name}.{key}"].tolist() if f"samples.{name}.{key}" in frame else []
        for key in ("spread", "difference", "difference_low", "difference_high")
    )
    told = _form(frame, name)
    yield f"spread of {name}", [told(width) if width == width else "" for width in spread]
    if by:
        yield (
            f"{name} against the first",
            [_difference(*row) for row in zip(by, low, high, strict=True)],
        )


def _difference(by: float | None, low: float, high: float) -> str:
    if by is None or by != by:
        return ""
    return f"{100.0 * by:+.1f} % ({100.0 * low:+.1f} to {100.0 * high:+.1f})"


def _form(frame: "pd.DataFrame", name: str) -> Callable[[Any], str]:
    """Return the function that writes a value of a column."""
    unit = frame.attrs.get("units", {}).get(name.partition(".")[0])
    return partial(figure, unit=unit) if unit else _SHOWN.get(name, figure)


def _cells(frame: "pd.DataFrame", name: str) -> Iterator[str]:
    """Yield a column as text. A loss reads "diverged" if its run diverged."""
    diverged = frame["diverged"].tolist() if "diverged" in frame.columns else [None] * len(frame)
    form = _form(frame, name)
    for value, lost in zip(frame[name].tolist(), diverged, strict=True):
        if name == "loss" and lost is True:
            yield "diverged"
        elif value is None or value != value:
            yield ""
        else:
            told = form(value)
            yield told if len(told) <= _LONGEST else f"{told[: _LONGEST - 3]}..."
