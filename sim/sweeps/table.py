"""The table of a sweep: one row a point, as a data frame, a file, JSON and text."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.config.errors import InputError
from sim.config.files import atomic_write
from sim.config.units import human_bytes, human_seconds
from sim.results.formatting import loss
from sim.results.tables import preformatted

if TYPE_CHECKING:
    import pandas as pd

    from sim.sweeps.answer import Sweep

Row = dict[str, Any]

WALL = "wall_seconds"
METRICS = (
    "step_time", "step_time_low", "step_time_expected", "step_time_high", "samples_per_second",
    "tokens_per_second", "tokens_per_second_per_gpu", "dollars_per_million_tokens", "mfu",
    "hfu", "model_tflops_per_gpu",
    "bubble_fraction", "straggler_seconds", "ranks", "roles", "operations", "events", "capacity",
    "fits",
)  # fmt: skip

SHARED = (
    "time", "updates", "updates_per_second", "samples", "samples_per_second", "bytes", "dropped",
    "lost", "straggler_seconds", "loss", "diverged", "time_to_target", "fits", "events",
)  # fmt: skip


def in_a_line(sweep: "Sweep") -> str:
    """The scenario and how many points there are."""
    return f"{sweep.scenario} at {sweep.points} points, {sweep.valid} of them valid"


def table(rows: Sequence[tuple[Mapping[str, Any], Row]]) -> "pd.DataFrame":
    """One row a point: what was varied, every input, every metric, validity, wall time."""
    import pandas as pd

    merged = [_cells({**point, **row}) for point, row in rows]
    varied = list(dict.fromkeys(key for point, _ in rows for key in point))
    names = sorted({name for row in merged for name in row}, key=_place)
    columns = [*varied, *(name for name in names if name not in varied)]
    frame = pd.DataFrame(merged, columns=columns).rename_axis("point")
    frame.attrs["varied"] = varied
    return frame


def _cells(row: Row) -> Row:
    return {key: _cell(value) for key, value in row.items()}


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | tuple | dict) else value


def _place(name: str) -> tuple[int, int, str]:
    """Inputs, metrics, seconds by cause, bytes by part, validity, wall time; each by name."""
    known = (*METRICS, *SHARED)
    if name in known:
        return 1, known.index(name), name
    prefix = name.partition(".")[0]
    groups = {"seconds": 2, "memory": 3, "samples": 4, "valid": 5, "reason": 6, WALL: 7}
    return groups.get(prefix, 0), 0, name


def write(frame: "pd.DataFrame", path: Path) -> None:
    """Write a table as .parquet or .csv, whole or not at all. Raises `InputError`."""
    writer = _WRITERS.get(path.suffix)
    if writer is None:
        raise InputError(f"--out {path}", "has an unknown ending", "end it in .csv or .parquet")
    with atomic_write(path) as part:
        writer(frame, part)


def _csv(frame: "pd.DataFrame", path: Path) -> None:
    frame.to_csv(path)


def _parquet(frame: "pd.DataFrame", path: Path) -> None:
    try:
        frame.to_parquet(path)
    except ImportError:
        remedy = "pip install 'clustersim[parquet]', or name a .csv file"
        raise InputError("--out", "Parquet needs pyarrow", remedy) from None


_WRITERS: dict[str, Callable[["pd.DataFrame", Path], None]] = {".csv": _csv, ".parquet": _parquet}
SUFFIXES = tuple(_WRITERS)


def records(frame: "pd.DataFrame") -> list[dict[str, Any]]:
    """Every row as JSON has it, numbers that are absent left out."""
    rows = json.loads(frame.to_json(orient="records", double_precision=15))
    return [{key: value for key, value in row.items() if value is not None} for row in rows]


def html(sweep: "Sweep") -> str:
    """The same page for a notebook."""
    return preformatted(text(sweep))


def text(sweep: "Sweep") -> str:
    """What varied, and the first figures that anyone looks at."""
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
