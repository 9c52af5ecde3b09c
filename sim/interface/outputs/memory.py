"""`--memory` draws the allocated memory over a step, or writes it as a table."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sim.config.errors import InputError
from sim.results.answer import Answer

if TYPE_CHECKING:
    import pandas as pd

    from sim.engine.memory_curve import MemoryCurve

HELP = "Draw memory over the step, or write it as a table"
SUFFIXES = (".png", ".svg", ".csv")


def write(answer: Answer, path: Path, width: float | None = None) -> None:
    """Draw the memory of the fullest stage by part, and of all stages; a table has all stages."""
    from sim.config.files import atomic_write
    from sim.interface.plots import picture

    curves = answer.get("memory_curves")
    if not curves:
        raise InputError("--memory", "such a job has no curve of memory", "leave it out")
    if path.suffix.lower() != ".csv":
        picture.save(answer.plot("memory"), path, width)
        return
    with atomic_write(path) as part:
        frame(curves).to_csv(part, index=False)


def frame(curves: "Sequence[MemoryCurve]") -> "pd.DataFrame":
    """Return the bytes by part, in a row for each stage and each time its memory changes."""
    import pandas as pd

    tables = [
        pd.DataFrame(curve.bytes, columns=list(curve.parts)).assign(
            stage=curve.stage, time=curve.times, fragmentation=curve.fragmented, total=curve.total
        )
        for curve in curves
    ]
    whole = pd.concat(tables).fillna(0.0)
    first = ["stage", "time", "total"]
    return whole[[*first, *(column for column in whole if column not in first)]]
