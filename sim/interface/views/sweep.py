"""A sweep as text."""

from typing import Any

from sim.analysis.sweeps.answer import Sweep
from sim.config.units import human_bytes, human_seconds
from sim.results.formatting import loss
from sim.results.tables import preformatted


def in_a_line(sweep: Sweep) -> str:
    """The scenario and how many points there are."""
    return f"{sweep.scenario} at {sweep.points} points, {sweep.valid} of them valid"


def html(sweep: Sweep) -> str:
    """The same page for a notebook."""
    return preformatted(text(sweep))


def text(sweep: Sweep) -> str:
    """The keys that varied, and the first figures that anyone looks at."""
    frame = sweep.frame
    formatters: dict[str, Any] = {
        "time": human_seconds, "loss": str, "staleness": "{:.2f}".format,
        "step_time": human_seconds, "step_time_low": human_seconds,
        "step_time_expected": human_seconds, "step_time_high": human_seconds,
        "samples.p99": human_seconds, "mfu": "{:.1%}".format,
        "bubble_fraction": "{:.1%}".format,
        "dollars_per_million_tokens": "{:.3g}".format, "memory.total": human_bytes, "reason": str,
    }  # fmt: skip
    columns = dict.fromkeys([*frame.attrs["varied"], *formatters])
    narrow = frame[[name for name in columns if name in frame.columns]]
    if "diverged" in frame.columns:
        known = frame["loss"].notna() | frame["diverged"].eq(True)
        narrow = narrow.assign(loss=frame["loss"].map(loss, na_action=None).where(known, ""))
    page = narrow.to_string(na_rep="", formatters=formatters, max_colwidth=100)
    return "\n".join(line.rstrip() for line in page.splitlines())
