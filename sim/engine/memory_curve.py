"""Memory over a played step: what the operations of a stage allocate, at the times they ran."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sim.engine.record import Record
from sim.engine.timeline import Span
from sim.program.memory import NOTHING
from sim.program.memory_levels import Floats, Levels, levels
from sim.program.operations import Operation
from sim.program.program import Program


@dataclass(frozen=True, eq=False)
class MemoryCurve:
    """The bytes that a rank of one stage has allocated over a step.

    `bytes` [points, parts] hold from each of the `times` (s) on. Blocks are taken and given back in
    the order of the program, as a caching allocator does on the host's side, each no earlier than
    the operation that asks for it begins. `fragmented` are bytes that the allocator cannot use.
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
        """Bytes of all parts and what is lost between them [points]."""
        total: Floats = self.bytes.sum(axis=1) + self.fragmented
        return total

    @property
    def peak(self) -> float:
        """The most bytes at once, what `sim.parallel.memory.Memory` says is reserved."""
        fullest = self.levels.by_part(self.levels.during[self.levels.fullest])
        return sum(fullest.values()) + self.fragmented


def memory_curve(
    program: Program, record: Record, stage: int, fragmented: float = 0.0
) -> MemoryCurve:
    """The curve of the lowest rank of a stage whose allocator has lost so many bytes."""
    from sim.program.unrolled import operations

    role = next(role for role in record.roles if role.stage == stage)
    spans = [span for span in record.timeline.spans if span.role == role.index]
    allocating = [
        operation for operation, _ in operations(program, stage) if operation.memory is not NOTHING
    ]
    order = np.arange(len(allocating))
    step = levels(program.stages[stage].resident, [op.memory for op in allocating], order)
    starts, ends = np.array(list(_times(allocating, spans))).reshape(-1, 2).T
    starts = np.maximum.accumulate(starts)
    ends = np.clip(ends, starts, np.append(starts[1:], record.end))
    times = np.concatenate(([0.0], np.column_stack((starts, ends)).ravel()))
    middle = np.stack((step.during[1:], step.after[1:]), axis=1).reshape(-1, len(step.parts))
    bytes = np.concatenate((step.after[:1], middle))
    return MemoryCurve(stage, step, times, bytes, fragmented)


def _times(allocating: list[Operation], spans: list[Span]) -> Iterator[tuple[float, float]]:
    """When operations began and ended; some were played in pieces, the last with their name."""
    by_name = {span.name: span for span in spans}
    for operation in allocating:
        last = by_name[operation.name]
        yield by_name.get(f"{operation.name}.0", last).start, last.end
