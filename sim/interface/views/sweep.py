"""A sweep: the keys that varied, and the first figures that anyone looks at."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from sim.analysis.sweeps.answer import Sweep
from sim.config.units import human_bytes, human_seconds
from sim.interface.document.nodes import Document, document, table
from sim.results.formatting import loss

if TYPE_CHECKING:
    import pandas as pd

_SHOWN: dict[str, Callable[[Any], str]] = {
    "time": human_seconds, "loss": loss, "staleness": "{:.2f}".format,
    "step_time_expected": human_seconds, "step_time_low": human_seconds,
    "step_time_high": human_seconds, "step_time": human_seconds,
    "samples.p99": human_seconds, "mfu": "{:.1%}".format, "bubble_fraction": "{:.1%}".format,
    "dollars_per_million_tokens": "{:.3g}".format, "memory.total": human_bytes, "reason": str,
}  # fmt: skip
_LONGEST = 100  # characters of a reason


def view(sweep: Sweep) -> Document:
    """A row a point."""
    frame = sweep.frame
    shown = [name for name in _SHOWN if name in frame.columns]
    if shown in ([], ["reason"]):  # a kind with figures of its own
        shown = [name for name in frame.columns if frame[name].dtype.kind == "f"] + shown
    names = dict.fromkeys([*frame.attrs["varied"], *shown])
    columns = {name: list(_cells(frame, name)) for name in names if name in frame.columns}
    rows = zip(map(str, frame.index), *columns.values(), strict=True)
    line = f"{sweep.scenario} at {sweep.points} points, {sweep.valid} of them valid"
    return document("", table(rows, ("point", *columns)), line=line)


def _cells(frame: "pd.DataFrame", name: str) -> Iterator[str]:
    """A column as text; a loss that has grown beyond all numbers has diverged."""
    diverged = frame["diverged"].tolist() if "diverged" in frame.columns else [None] * len(frame)
    for value, lost in zip(frame[name].tolist(), diverged, strict=True):
        if name == "loss" and lost is True:
            yield "diverged"
        elif value is None or value != value:
            yield ""
        else:
            told = _SHOWN.get(name, str)(value)
            yield told if len(told) <= _LONGEST else f"{told[: _LONGEST - 3]}..."
