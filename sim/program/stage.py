"""A stage: what the ranks of one pipeline stage do in one training step."""

from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from sim.config.dataclass import dataclass
from sim.program.actions import PassVariant
from sim.program.operations import (
    COMPUTE_STREAM,
    Call,
    Collective,
    Communicate,
    Compute,
    Copy,
    PassOps,
)

# Axes, and stages where they are restricted; or the links of a copy, their loads, who copies.
Scope = tuple[tuple[str, ...], tuple[int, ...] | None, tuple[object, ...]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Stage:
    """The work of ranks before the passes (on the host alone, which launches whatever any stream
    runs in them), in each of them, and after the last one.

    `ops_by_variant` has an entry for each variant in the stage's order. What is `beside` begins
    with the step on streams of its own, waits for nothing in it, and the step ends when it has: a
    loader reads the next samples, a checkpoint is written. `resident` are the bytes by part that
    are allocated from one step to the next. `pieces` are the pieces of the model that the stage
    holds, unless its schedule says so.
    """

    opening: Compute | None = None
    ops_by_variant: Mapping[PassVariant, PassOps] = field(default_factory=dict)
    closing: PassOps = field(default_factory=PassOps)
    beside: PassOps = field(default_factory=PassOps)
    resident: Mapping[str, float] = field(default_factory=dict)
    pieces: tuple[int, ...] = ()

    @property
    def all_ops(self) -> tuple[PassOps, ...]:
        """The operations of each variant once, then those that close the step, then those beside
        it."""
        return *self.ops_by_variant.values(), self.closing, self.beside

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """The distinct calls of all operations."""
        return _distinct(ops.calls for ops in self.all_ops)

    @cached_property
    def calls_inside(self) -> tuple[Call, ...]:
        """Calls inside computations."""
        return _distinct(ops.calls_inside for ops in self.all_ops)

    @cached_property
    def calls_beside(self) -> tuple[Call, ...]:
        """Calls of transfers on streams of their own."""
        return _distinct(
            operation.calls
            for ops in self.all_ops
            for operation in ops.operations
            if isinstance(operation, Communicate) and operation.stream != COMPUTE_STREAM
        )

    @cached_property
    def calls_of_passes(self) -> tuple[Call, ...]:
        """Calls of passes."""
        return _distinct(ops.calls for ops in self.ops_by_variant.values())

    @cached_property
    def scopes(self) -> frozenset[Scope]:
        """The axes and stages that its collectives name."""
        collectives = (call for call in self.calls if isinstance(call, Collective))
        return frozenset(
            (
                call.axes,
                call.stages,
                (call.path, call.loads, call.first) if isinstance(call, Copy) else (),
            )
            for call in collectives
        )

    @cached_property
    def streams_of_passes(self) -> frozenset[str]:
        """The streams on which its passes run."""
        return frozenset(chain.from_iterable(ops.streams for ops in self.ops_by_variant.values()))

    @cached_property
    def pass_totals(self) -> NDArray[np.float64]:
        """Bytes that each variant leaves, and its peak [2, variants]."""
        uses = [ops.memory for ops in self.ops_by_variant.values()]
        return np.array([[use.left for use in uses], [use.highest for use in uses]])

    @cached_property
    def end_totals(self) -> tuple[float, float]:
        """Resident bytes, and the peak of the closing above what the passes leave."""
        return sum(self.resident.values()), self.closing.memory.highest


def _distinct(calls: Iterable[tuple[Call, ...]]) -> tuple[Call, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(calls)))
