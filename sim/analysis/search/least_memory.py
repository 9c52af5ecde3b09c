"""A lower bound of the memory of a layout's passes, without their program."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from sim.parallel.job import Chunk, Job
from sim.parallel.memory import PassUses
from sim.program.memory import MemoryUse, in_a_row
from sim.program.memory_levels import Floats, highest_of_passes
from sim.program.schedule import Kind, PassVariant, Schedule


def least_of_passes(job: Job, schedule: Schedule) -> Floats:
    """Return a lower bound of the bytes that the passes of each stage have allocated at once. It
    leaves out gradients and gathered weights, and needs no program."""
    last = schedule.cuts - 1
    rows = list[tuple[float, float]]()
    for stage, places in enumerate(schedule.pieces):
        uses = [
            partial(_before_gradients, job, chunk, piece != last)
            for chunk, piece in zip(job.chunks[stage], places, strict=True)
        ]
        rows += [_left_and_highest(variant, uses) for variant in schedule.actions[stage].variants]
    left, highest = np.array(rows).T
    return highest_of_passes(schedule, left, highest)[0]


def _left_and_highest(
    variant: PassVariant, uses: Sequence[Callable[[Kind], MemoryUse]]
) -> tuple[float, float]:
    """Return the bytes that a pass leaves, and its bytes at the worst moment. For two passes that
    take turns, only the bytes that both leave are known, and they count for the forward pass."""
    use = uses[variant.chunk](variant.kind)
    if variant.beside is None:
        return use.left, use.highest
    kind, chunk = variant.beside
    both = (use.left + uses[chunk](kind).left) * (variant.kind == "F")
    return both, max(both, 0.0)


def _before_gradients(job: Job, chunk: Chunk, sends: bool, kind: Kind) -> MemoryUse:
    key = job.workload, chunk, sends

    def use() -> MemoryUse:
        uses = job.known.memo(("uses", *key), lambda: PassUses(job, chunk, sends=sends))
        inner = uses.blocks[:-1]
        numbers = {id(block): number for number, block in enumerate(inner)}
        alike = {
            block_id: uses.before_gradients(kind, number) for block_id, number in numbers.items()
        }
        row = [*(alike[id(block)] for block in inner), uses.before_gradients(kind, len(inner))]
        return in_a_row(row if kind == "F" else reversed(row))

    return job.known.memo(("before gradients", kind, *key), use)
