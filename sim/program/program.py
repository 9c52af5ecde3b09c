"""A program: what every rank of each pipeline stage does in one training step.

It is SPMD: all ranks of a stage run the same operations. What a pass does is written once for all
microbatches (`PassOps`); the schedule says in which order passes run.

An `Exchange` is how neighbouring stages hand over activations and their gradients.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import cached_property
from itertools import chain
from typing import Literal

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
from sim.program.schedule import Schedule

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


Style = Literal["batched", "async-send", "overlapped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """How neighbouring stages hand over activations and their gradients: `bytes` each, or, where
    they differ, those behind each piece of the model.

    `batched`: after every pass one blocking exchange sends its output and receives the next pass's
    input (Megatron-LM's send_forward_recv_backward and its kin, batch_isend_irecv). `async-send`:
    the send runs on a stream of its own, the receive blocks the compute stream when its data is
    needed. `overlapped`: both run on streams of their own (Megatron-Core's
    overlap_p2p_communication). `sync` makes the host wait for what blocks the compute stream.
    `among` are the ranks of the communicator that carries a message: torch makes one for the two of
    a single isend or irecv, and takes the group's own for batch_isend_irecv (ProcessGroupNCCL.cpp,
    `pointToPoint`).
    """

    style: Style = "batched"
    bytes: float | tuple[float, ...] = 0.0
    sync: bool = False
    among: int = 2

    def between(self, one: int, other: int) -> float:
        """Bytes that pass between two neighbouring pieces, either way."""
        return self.bytes[min(one, other)] if isinstance(self.bytes, tuple) else self.bytes


def message_stream(what: str, way: str, stage: int, peer: int, stages: int) -> str:
    """The stream on which a stage sends or receives forward (F) or backward (B): messages between
    two stages stay in order and do not block others.

    >>> message_stream("send", "F", 0, 1, 4), message_stream("send", "F", 2, 1, 4)
    ('send F', 'send F 1')
    """
    usual = stage + (1 if (what == "send") == (way == "F") else -1)
    return f"{what} {way}" + ("" if peer == usual % stages else f" {peer}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """One step; `mesh` gives the axis sizes, fastest varying first.

    Operations on one stream run in order; `after` names operations of the same stage. Names are
    unique within a stage. Where stages end a step `apart`, none waits for another and the next step
    begins on each as soon as it is done: a step then takes as long as on the stage that takes
    longest from its first pass on, and what a stage waits before that overlaps the step before.
    """

    mesh: Mapping[str, int]
    schedule: Schedule
    stages: tuple[Stage, ...]
    exchange: Exchange = field(default_factory=Exchange)
    apart: bool = False

    def __post_init__(self) -> None:
        for stage, (stage_program, actions) in enumerate(
            zip(self.stages, self.schedule.actions, strict=True)
        ):
            if tuple(stage_program.ops_by_variant) != actions.variants:
                raise ValueError(f"stage {stage} needs operations for each variant, in their order")

    @property
    def base(self) -> "Program | None":
        """The same with fewer steps, where it has several that do not end before the next begin."""
        base = self.schedule.base
        return None if base is None else replace(self, schedule=base)

    @property
    def ends(self) -> bool:
        """Whether a step has an end at which the next one begins."""
        return not self.apart and self.schedule.base is None

    def neighbours(self) -> Iterator[tuple[int, int]]:
        """Every pair of stages (from, to) between which messages pass, both ways."""
        pairs = dict.fromkeys(
            (here, there) for (here, _), (there, _) in self.schedule.borders() if here != there
        )
        yield from pairs
        yield from ((there, here) for here, there in pairs if (there, here) not in pairs)
