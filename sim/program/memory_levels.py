"""How full a memory is over a row of operations: at each operation's worst moment and after it."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sim.config.dataclass import dataclass
from sim.program.memory import MemoryUse, Parts
from sim.program.program import Program
from sim.program.schedule import Schedule

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

_DUST = 0.5  # bytes; smaller amounts are rounding errors


@dataclass(frozen=True, eq=False)
class Levels:
    """Bytes by part [operations, parts]: `during` each operation at its worst, and `after` it.

    The first row is the beginning of the step.
    """

    parts: tuple[str, ...]
    during: Floats
    after: Floats

    @cached_property
    def total(self) -> Floats:
        """Bytes at the worst moment of each operation."""
        total: Floats = self.during.sum(axis=1)
        return total

    @property
    def fullest(self) -> int:
        """The row with the largest total."""
        return int(self.total.argmax())

    def by_part(self, row: Floats) -> dict[str, float]:
        """Return the bytes of a row by part, without empty parts."""
        named = zip(self.parts, row.tolist(), strict=True)
        return {part: size for part, size in named if abs(size) > _DUST}


def levels(resident: Parts, uses: Sequence[MemoryUse], order: Indices) -> Levels:
    """Return the levels of operations in a row, which start at `resident` bytes. `order` has the
    place of each operation in `uses`.

    >>> forward = MemoryUse({"activations": 3.0}, {"activations": 3.0, "transient": 1.0})
    >>> backward = MemoryUse({"activations": -3.0}, {"transient": 2.0})
    >>> step = levels({"weights": 5.0}, [forward, backward], np.array([0, 0, 1, 1]))
    >>> step.total.tolist(), step.by_part(step.during[step.fullest])
    ([5.0, 9.0, 12.0, 13.0, 10.0], {'weights': 5.0, 'activations': 6.0, 'transient': 2.0})
    """
    names = dict.fromkeys([*resident, *(p for u in uses for p in (*u.kept, *u.peak))])
    place = {part: column for column, part in enumerate(names)}
    kept, peak = np.zeros((2, len(uses), len(place)))
    for row, use in enumerate(uses):
        for part, size in use.kept.items():
            kept[row, place[part]] = size
        for part, size in use.peak.items():
            peak[row, place[part]] = size
    rest = np.array([[resident.get(part, 0.0) for part in place]])
    after = np.concatenate([rest, rest + np.cumsum(kept[order], axis=0)])
    during = np.concatenate([rest, after[:-1] + peak[order]])
    return Levels(tuple(place), during, after)


def levels_of(program: Program, stage: int) -> Levels:
    """Return the levels of a stage's operations in the program's order, without messages between
    stages."""
    uses, order, _, _ = in_order(program, stage)
    return levels(program.stages[stage].resident, uses, order)


def in_order(program: Program, stage: int) -> tuple[list[MemoryUse], Indices, Indices, Indices]:
    """Return what a stage's distinct operations allocate, and three arrays over all its operations
    in the program's order, without messages between stages. For each operation the arrays have its
    place in the first list, the place of its pass in the stage's order, and its place in that pass.
    Operations that close the step have the place after the last pass."""
    stage_program, actions = program.stages[stage], program.schedule.actions[stage]
    passes = [stage_program.ops_by_variant[variant] for variant in actions.variants]
    blocks = [*passes, stage_program.closing]
    sequence = np.append(actions.rows, len(blocks) - 1)
    lengths = np.array([len(block) for block in blocks])
    first, own_length = (np.cumsum(lengths) - lengths)[sequence], lengths[sequence]
    behind = np.cumsum(own_length) - own_length  # operations before each block
    number = np.arange(own_length.sum()) - np.repeat(behind, own_length)
    uses = [operation.memory for block in blocks for operation in block]
    place = np.repeat(np.arange(len(sequence)), own_length)
    return uses, np.repeat(first, own_length) + number, place, number


def peaks(program: Program) -> Floats:
    """Return the most bytes that each stage has allocated at once."""
    kept, highest = np.concatenate([stage.pass_totals for stage in program.stages], axis=1)
    during, passes = highest_of_passes(program.schedule, kept, highest)
    start, closing = np.array([stage.end_totals for stage in program.stages]).T
    most: Floats = start + np.maximum(during, passes + closing)
    return most


def highest_of_passes(schedule: Schedule, kept: Floats, highest: Floats) -> tuple[Floats, Floats]:
    """Return the most bytes that the passes of each stage have allocated at once, and the bytes
    that the passes leave. `kept` is what each variant leaves allocated, `highest` its
    peak while it runs; the variants of stage 0 come first, then those of stage 1, and so on."""
    rows, starts = schedule.rows
    after = np.cumsum(kept[rows])
    before = after - kept[rows]
    first = before[starts]
    during: Floats = np.maximum.reduceat(before + highest[rows], starts) - first
    return during, np.append(first[1:], after[-1]) - first
