"""The table of a sweep: a row for each point, as a data frame, a file and JSON."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sim.analysis.samples.pairs import paired
from sim.config.errors import InputError
from sim.config.files import atomic_write

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]

WALL = "wall_seconds"


def table(rows: Sequence[tuple[Mapping[str, Any], Row]]) -> "pd.DataFrame":
    """Return a row for each point: varied keys, all inputs, all metrics, validity and wall time."""
    import pandas as pd

    merged = [{key: _cell(value) for key, value in {**point, **row}.items()} for point, row in rows]
    varied = list(dict.fromkeys(key for point, _ in rows for key in point))
    names = sorted(dict.fromkeys(name for row in merged for name in row), key=_place)
    columns = [*varied, *(name for name in names if name not in varied)]
    frame = pd.DataFrame(merged, columns=columns).rename_axis("point")
    frame.attrs["varied"] = varied
    return frame


def with_differences(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return a table of runs with different seeds, and add each point's differences from the first
    valid point. A difference is the share by which a figure is larger with the same seed: the mean
    and its 90 % interval (`pairs`). A figure that the first point lacks has no differences."""
    valid = [at for at, fits in enumerate(frame["valid"]) if fits]
    for column in [str(name) for name in frame.columns if str(name).endswith(".runs")]:
        cells = frame[column].tolist()
        given = (at for at in valid if isinstance(cells[at], str))
        runs = {at: np.array(json.loads(cells[at]), np.float64) for at in given}
        if len({len(values) for values in runs.values()}) != 1 or valid[0] not in runs:
            continue  # also where a stopped sweep drew fewer runs at some points
        found = {at: paired(runs[valid[0]], other) for at, other in runs.items() if at != valid[0]}
        name = column.removesuffix("runs") + "difference"
        for key, ending in (("by", ""), ("low", "_low"), ("high", "_high")):
            shares = [getattr(found.get(at), key, None) for at in range(len(frame))]
            frame[f"{name}{ending}"] = shares
    return frame


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | tuple | dict) else value


def _place(name: str) -> int:
    """Return the group of a column: inputs and figures, seconds by cause, bytes by part, samples,
    validity, then wall time."""
    groups = {"seconds": 1, "memory": 2, "samples": 3, "valid": 4, "reason": 5, WALL: 6}
    return groups.get(name.partition(".")[0] if "." in name else name, 0)


def write(frame: "pd.DataFrame", path: Path) -> None:
    """Write a table as .parquet or .csv, whole or not at all. Raises `InputError`."""
    writer = _WRITERS.get(path.suffix)
    if writer is None:
        raise InputError(f"--out {path}", "has an unknown ending", "end it in .csv or .parquet")
    with atomic_write(path) as part:
        writer(frame, part)


def _parquet(frame: "pd.DataFrame", path: Path) -> None:
    try:
        frame.to_parquet(path)
    except ImportError:
        remedy = "pip install 'clustersim[parquet]', or name a .csv file"
        raise InputError("--out", "Parquet needs pyarrow", remedy) from None


_WRITERS: dict[str, Callable[["pd.DataFrame", Path], None]] = {
    ".csv": lambda frame, path: frame.to_csv(path),
    ".parquet": _parquet,
}
SUFFIXES = tuple(_WRITERS)


def records(frame: "pd.DataFrame") -> list[dict[str, Any]]:
    """Return every row as plain JSON data, without absent values."""
    rows = json.loads(frame.to_json(orient="records", double_precision=15))
    return [{key: value for key, value in row.items() if value is not None} for row in rows]
