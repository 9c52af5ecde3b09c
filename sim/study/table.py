"""Measurement tables: one row a measured run, turned into a setup that can be simulated.

The columns are those of the tables' README: model shape, layout, software, cluster, step time.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.errors import InputError
from sim.hardware import stack as stacks
from sim.hardware import topology as topologies
from sim.model import transformer as models
from sim.parallel.plan import Plan
from sim.setup import Setup, assemble

if TYPE_CHECKING:
    import pandas as pd

REQUIRED = (
    "id", "cluster", "family", "layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "seq",
    "gated_mlp", "tied_embeddings", "gpus", "tp", "pp", "dp", "zero", "microbatch", "global_batch",
    "interleave", "schedule", "recompute", "sequence_parallel", "precision", "attention",
    "software", "step_time_s",
)  # fmt: skip
_SPLIT_BACKWARD = ("zb-1p", "zb-2p", "zb-v", "dualpipe")


def read(path: Path) -> "pd.DataFrame":
    """A table of measured runs. Raises `InputError` for a missing file or column."""
    import pandas as pd

    if not path.is_file():
        raise InputError(str(path), "no such file", "name a CSV of measured runs")
    try:
        frame = pd.read_csv(path, dtype={"note": str, "assumed": str})
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(str(path), f"is not a CSV table ({reason})", "check the file") from None
    missing = [column for column in REQUIRED if column not in frame.columns]
    if missing:
        remedy = "the columns are listed in README.md under 'Your own measurements'"
        raise InputError(str(path), f"column {missing[0]!r} is missing", remedy)
    return frame


def records(path: Path) -> list[dict[str, Any]]:
    """The rows of a table as dictionaries."""
    return [
        {str(key): value for key, value in row.items()} for row in read(path).to_dict("records")
    ]


def setup_of(row: Mapping[str, Any]) -> Setup:
    """The job and machine of a row. Raises `InputError` with the reason where it has none."""
    where = str(row["id"])
    if row["schedule"] in _SPLIT_BACKWARD:
        what = f"schedule {row['schedule']} splits the backward pass"
        raise InputError(where, what, "only gpipe, 1f1b and interleaved are simulated")
    model = models.from_columns(row)
    topology = topologies.load(str(row["cluster"]), where=where).with_gpus(int(row["gpus"]))
    stack = stacks.load(str(row["software"]), where=where)
    return assemble(where, model=model, stack=stack, topology=topology, plan=_plan(row, model))


def _plan(row: Mapping[str, Any], model: models.Transformer) -> Plan:
    if row["recompute"] not in ("none", "selective", "full"):
        raise InputError(str(row["id"]), f"recompute is {row['recompute']}", "it must be known")
    plan = Plan(
        global_batch=int(row["global_batch"]),
        microbatch=int(row["microbatch"]),
        tp=int(row["tp"]),
        cp=int(_or(row.get("cp"), 1)),
        pp=int(row["pp"]),
        dp=int(row["dp"]),
        schedule="1f1b" if row["schedule"] == "none" else row["schedule"],
        interleave=int(row["interleave"]),
        zero=int(row["zero"]),
        recompute=row["recompute"],
        sequence_parallel=_true(row["sequence_parallel"]),
        precision=row["precision"],
        optimizer="lamb" if model.family == "bert" else "adam",
    )
    # Some tables say true whatever tp is; at tp = 1 there is nothing to split.
    return plan if plan.tp > 1 else replace(plan, sequence_parallel=False)


def _or(value: Any, default: int) -> Any:
    return default if value is None or value != value else value


def _true(value: Any) -> bool:
    return value if isinstance(value, bool) else str(value).strip().lower() == "true"
