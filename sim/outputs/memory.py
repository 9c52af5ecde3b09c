"""`--memory`: what is allocated over a step, as a picture or as a table."""

from pathlib import Path
from typing import TYPE_CHECKING

from sim.config.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from sim.results.outcome import Outcome
    from sim.results.result import Result

HELP = "Draw memory over the step, or write it as a table"
SUFFIXES = (".png", ".svg", ".csv")


def write(result: "Result | Outcome", path: Path) -> None:
    """The fullest stage by part and beside its peers; all stages in a table."""
    from sim.config.files import atomic_write
    from sim.plots import memory, picture
    from sim.results.result import Result

    if not isinstance(result, Result):
        what = "workers that share updates have no curve of memory"
        raise InputError("--memory", what, "leave it out, or train without [sharing]")
    if path.suffix.lower() != ".csv":
        picture.save(memory.figure(result), path)
        return
    with atomic_write(path) as part:
        frame(result).to_csv(part, index=False)


def frame(result: "Result") -> "pd.DataFrame":
    """One row for each stage and moment at which its memory changes: bytes by part."""
    import pandas as pd

    tables = [
        pd.DataFrame(curve.bytes, columns=list(curve.parts)).assign(
            stage=curve.stage, time=curve.times, fragmentation=curve.fragmented, total=curve.total
        )
        for curve in result.memory
    ]
    whole = pd.concat(tables).fillna(0.0)
    first = ["stage", "time", "total"]
    return whole[[*first, *(column for column in whole if column not in first)]]
