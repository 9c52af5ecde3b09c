"""Memory over a played step: a stage's allocated bytes at the times when its operations ran."""

from functools import cached_property

import numpy as np

from sim.config.dataclass import dataclass
from sim.engine.record import Record
from sim.engine.timeline import Role
from sim.program.memory import NOTHING, MemoryUse
from sim.program.memory_levels import Floats, Levels, in_order, levels
from sim.program.program import Program


@dataclass(frozen=True, eq=False)
class MemoryCurve:
    """The bytes that a rank of one stage has allocated over a step.

    From each of the `times` (s) on, parts have `bytes` [points, parts]. Blocks are allocated and
    freed in the order of the program, as by a caching allocator on the host. A block is allocated
    no earlier than its operation begins. `fragmented` are bytes that the allocator cannot use.
    """

    stage: int
    levels: Levels
    times: Floats
    bytes: Floats
    fragmented: float = 0.0

    @property
    def parts(self) -> tuple[str, ...]:
        return self.levels.parts

    @cached_property
    def total(self) -> Floats:
        """The bytes of all parts, and the bytes lost to fragmentation [points]."""
        total: Floats = self.bytes.sum(axis=1) + self.fragmented
        return total

    @property
    def peak(self) -> float:
        """The most bytes at once, equal to the reserved bytes of `sim.parallel.memory.Memory`."""
        fullest = self.levels.by_part(self.levels.during[self.levels.fullest])
        return sum(fullest.values()) + self.fragmented


def memory_curve(
    program: Program, record: Record, stage: int, fragmented: float = 0.0
) -> MemoryCurve:
    """The memory curve of a stage's first role; its allocator has lost `fragmented` bytes."""
    role = next(role for role in record.roles if role.stage == stage)
    resident = program.stages[stage].resident
    if record.moments is None:
        uses, starts, ends = _by_name(program, record, role)
        step = levels(resident, uses, np.arange(len(uses)))
    else:
        uses, order, place, number = in_order(program, stage)
        allocates = np.array([use is not NOTHING for use in uses])[order]
        step = levels(resident, uses, order[allocates])
        starts, ends = record.moments(stage, place[allocates], number[allocates])
    return drawn(stage, step, starts, np.minimum(ends, record.end), fragmented)


def drawn(
    stage: int, step: Levels, starts: Floats, ends: Floats, fragmented: float = 0.0
) -> MemoryCurve:
    """The curve of operations that have these levels and run from `starts` to `ends` (s). No
    operation is drawn before an earlier operation of the program."""
    starts = np.maximum.accumulate(starts)
    ends = np.clip(ends, starts, np.append(starts[1:], np.inf))
    times = np.concatenate(([0.0], np.column_stack((starts, ends)).ravel()))
    middle = np.stack((step.during[1:], step.after[1:]), axis=1)
    bytes = np.concatenate((step.after[:1], middle.reshape(2 * len(starts), len(step.parts))))
    return MemoryCurve(stage, step, times, bytes, fragmented)


def _by_name(
    program: Program, record: Record, role: Role
) -> tuple[list[MemoryUse], Floats, Floats]:
    """The memory use of operations, when they began and when they ended. Some operations were
    played in pieces; the last piece has the operation's name."""
    from sim.program.unrolled import operations

    by_name = {span.name: span for span in record.timeline.spans if span.role == role.index}
    ops = [op for op, _ in operations(program, role.stage) if op.memory is not NOTHING]
    last = [by_name[op.name] for op in ops]
    first = [by_name.get(f"{op.name}.0", end) for op, end in zip(ops, last, strict=True)]
    starts, ends = np.array([s.start for s in first]), np.array([s.end for s in last])
    return [op.memory for op in ops], starts, ends
