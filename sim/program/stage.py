"""A stage: what the ranks of one pipeline stage do in one training step."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from sim.program.actions import Occasion
from sim.program.operations import (
    COMPUTE_STREAM,
    Call,
    Collective,
    Communicate,
    Compute,
    Copy,
)
from sim.program.routine import Routine

# Axes, and stages where they are restricted; or the links of a copy.
Scope = tuple[tuple[str, ...], tuple[int, ...] | None, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Stage:
    """What ranks do before the passes (on the host alone, which launches whatever any stream runs
    in them), in each of them, and after the last one.

    `routines` has one entry for every occasion in the stage's order. `resident` are the bytes by
    part that are allocated from one step to the next. `pieces` are the pieces of the model that
    the stage holds, unless its schedule says so.
    """

    opening: Compute | None = None
    routines: Mapping[Occasion, Routine] = field(default_factory=dict)
    closing: Routine = field(default_factory=Routine)
    resident: Mapping[str, float] = field(default_factory=dict)
    pieces: tuple[int, ...] = ()

    @property
    def all_routines(self) -> tuple[Routine, ...]:
        """Its routines, those of passes once for each occasion."""
        return *self.routines.values(), self.closing

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """The distinct calls of all routines."""
        return _distinct(routine.calls for routine in self.all_routines)

    @cached_property
    def calls_inside(self) -> tuple[Call, ...]:
        """Those inside computations."""
        return _distinct(routine.calls_inside for routine in self.all_routines)

    @cached_property
    def calls_beside(self) -> tuple[Call, ...]:
        """Those of transfers on streams of their own."""
        return _distinct(
            operation.calls
            for routine in self.all_routines
            for operation in routine.operations
            if isinstance(operation, Communicate) and operation.stream != COMPUTE_STREAM
        )

    @cached_property
    def calls_of_passes(self) -> tuple[Call, ...]:
        """Those of passes."""
        return _distinct(routine.calls for routine in self.routines.values())

    @cached_property
    def scopes(self) -> frozenset[Scope]:
        """The axes and stages that its collectives name."""
        collectives = (call for call in self.calls if isinstance(call, Collective))
        return frozenset(
            (call.axes, call.stages, call.path if isinstance(call, Copy) else ())
            for call in collectives
        )

    @cached_property
    def streams_of_passes(self) -> frozenset[str]:
        """The streams on which its passes run."""
        return frozenset(chain.from_iterable(own.streams for own in self.routines.values()))

    @cached_property
    def pass_totals(self) -> NDArray[np.float64]:
        """Bytes that each routine leaves, and those at its worst moment [2, routines]."""
        uses = [routine.memory for routine in self.routines.values()]
        return np.array([[use.left for use in uses], [use.highest for use in uses]])

    @cached_property
    def end_totals(self) -> tuple[float, float]:
        """Resident bytes, and the peak of the closing above what the passes leave."""
        return sum(self.resident.values()), self.closing.memory.highest


def _distinct(calls: Iterable[tuple[Call, ...]]) -> tuple[Call, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(calls)))
