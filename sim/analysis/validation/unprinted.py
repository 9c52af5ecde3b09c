"""Rules for settings that a table and the software's scripts (`Stack.scripts`) leave open. All rows
follow the same rules.

- Recomputation that a source does not print is the least that fits: none, then selective, then all.
- A microbatch that a source does not print is the largest divisor of a rank's share of the batch
  that fits. Micro-steps are used where memory is short.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sim.config.errors import InputError
from sim.model.checkpointing import MODES
from sim.model.columns import blank
from sim.parallel.memory import memories
from sim.parallel.step import training_step
from sim.scenario.setup import PlanSetup

UNKNOWN = "unknown"


def settled(row: Mapping[str, Any], make: Callable[[Mapping[str, Any]], PlanSetup]) -> PlanSetup:
    """Fill in the open settings of a row, and return the setup that `make` makes of the row.

    Raises `InputError` as `make` does. If no choice fits into memory, the smallest microbatch is
    taken, without recomputation.
    """
    choices = list(_choices(row))
    made = (make(choice) for choice in choices)
    if len(choices) > 1 and (found := next((setup for setup in made if fits(setup)), None)):
        return found
    smallest = choices[-1]["microbatch"]
    return make(next(choice for choice in choices if choice["microbatch"] == smallest))


def fits(setup: PlanSetup) -> bool:
    """Return whether the step of every stage fits into a rank's memory."""
    job = setup.job
    capacity = job.device.usable_memory
    return all(stage.fits(capacity) for stage in memories(job, training_step(job)))


def _choices(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for microbatch in _microbatches(row):
        for recompute in MODES if row["recompute"] == UNKNOWN else (row["recompute"],):
            yield {**row, "microbatch": microbatch, "recompute": recompute}


def _microbatches(row: Mapping[str, Any]) -> list[int]:
    if not blank(row["microbatch"]):
        return [row["microbatch"]]
    share, rest = divmod(int(row["global_batch"]), int(row["dp"]))
    if rest or not share:
        fault = f"microbatch is empty, and {row['dp']} ranks do not divide the batch"
        raise InputError(str(row["id"]), fault, "fill it in")
    return [size for size in range(share, 0, -1) if share % size == 0]
