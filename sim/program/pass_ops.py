"""The operations of a pass in order, written once for every engine that plays them."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from sim.program.actions import Action
from sim.program.memory import NOTHING, MemoryUse, in_a_row
from sim.program.operations import Call, Communicate, Compute, Operation, Work


@dataclass(frozen=True, eq=False)
class PassOps:
    """Operations in order, and what they do as a whole.

    `passes` has the pass of each operation (None: of none) where they are those of several, as in
    the step of a script that was recorded; their names are then those that they have in the step.
    """

    operations: tuple[Operation, ...] = ()
    passes: tuple[Action | None, ...] = ()

    def __iter__(self) -> Iterator[Operation]:
        return iter(self.operations)

    def __len__(self) -> int:
        return len(self.operations)

    @cached_property
    def memory(self) -> MemoryUse:
        return in_a_row(op.memory for op in self.operations if op.memory is not NOTHING)

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """The distinct calls, those inside computations first."""
        issued = (op for op in self.operations if isinstance(op, Communicate))
        return tuple(
            dict.fromkeys((*self.calls_inside, *(call for op in issued for call in op.calls)))
        )

    @cached_property
    def calls_inside(self) -> tuple[Call, ...]:
        """The distinct calls inside computations."""
        seen: dict[int, Work] = {}
        calls: dict[Call, None] = {}
        for operation in self.operations:
            if isinstance(operation, Compute):
                calls |= dict.fromkeys(operation.work.collectives(seen))
        return tuple(calls)

    @cached_property
    def streams(self) -> frozenset[str]:
        return frozenset(operation.stream for operation in self.operations)
