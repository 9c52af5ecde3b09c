"""A program: what every rank of each pipeline stage does in one training step.

A program is SPMD: all ranks of a stage run the same operations. The operations of a pass are
written once for all microbatches (`PassOps`); the schedule gives the order of the passes.

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
from sim.program.operations import (
    COMPUTE_STREAM,
    Call,
    Collective,
    Communicate,
    Compute,
    Copy,
    PassOps,
)
from sim.program.schedule import PassVariant, Schedule

# Axes, stages (None: all), and for a copy its links, their loads and the axes of its ranks.
Scope = tuple[tuple[str, ...], tuple[int, ...] | None, tuple[object, ...]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Stage:
    """The work of a stage's ranks before the passes, in each pass, and after the last pass.

    `opening` runs before the passes and only on the host, which launches the work of all streams.
    `ops_by_variant` has an entry for each variant in the stage's order, and `closing` runs after
    all passes. The operations in `beside` (a loader, a checkpoint) begin with the step on streams
    of their own. They wait for nothing in the step, but the step waits for their end. `resident`
    are the bytes by part that are allocated from one step to the next. `pieces` are the pieces of
    the model that the stage holds, if the schedule does not tell them.
    """

    opening: Compute | None = None
    ops_by_variant: Mapping[PassVariant, PassOps] = field(default_factory=dict)
    closing: PassOps = field(default_factory=PassOps)
    beside: PassOps = field(default_factory=PassOps)
    resident: Mapping[str, float] = field(default_factory=dict)
    pieces: tuple[int, ...] = ()

    @property
    def all_ops(self) -> tuple[PassOps, ...]:
        """The operations of each variant once, then the closing operations, then the operations
        beside the step."""
        return *self.ops_by_variant.values(), self.closing, self.beside

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """The distinct calls of all operations."""
        return _distinct(ops.calls for ops in self.all_ops)

    @cached_property
    def calls_inside(self) -> tuple[Call, ...]:
        """The distinct calls inside computations."""
        return _distinct(ops.calls_inside for ops in self.all_ops)

    @cached_property
    def calls_beside(self) -> tuple[Call, ...]:
        """The distinct calls of transfers on streams of their own."""
        return _distinct(
            operation.calls
            for ops in self.all_ops
            for operation in ops.operations
            if isinstance(operation, Communicate) and operation.stream != COMPUTE_STREAM
        )

    @cached_property
    def calls_of_passes(self) -> tuple[Call, ...]:
        """The distinct calls of passes, without calls that close the step or run beside it."""
        return _distinct(ops.calls for ops in self.ops_by_variant.values())

    @cached_property
    def scopes(self) -> frozenset[Scope]:
        """The axes, stages and copied links that the stage's collectives name."""
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
        """The streams on which the stage's passes run."""
        return frozenset(chain.from_iterable(ops.streams for ops in self.ops_by_variant.values()))

    @cached_property
    def pass_totals(self) -> NDArray[np.float64]:
        """The bytes that each variant leaves, and each variant's peak [2, variants]."""
        uses = [ops.memory for ops in self.ops_by_variant.values()]
        return np.array([[use.left for use in uses], [use.highest for use in uses]])

    @cached_property
    def end_totals(self) -> tuple[float, float]:
        """Resident bytes, and the peak of `closing` above the bytes that the passes leave."""
        return sum(self.resident.values()), self.closing.memory.highest


def _distinct(calls: Iterable[tuple[Call, ...]]) -> tuple[Call, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(calls)))


Style = Literal["batched", "async-send", "overlapped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """How neighbouring stages hand over activations and their gradients. `bytes` is the size of a
    message, or a tuple with the size after each piece of the model if sizes differ. `batched`:
    after every pass one blocking exchange sends its output and receives the next pass's input
    (Megatron-LM's send_forward_recv_backward and its kin, batch_isend_irecv). `async-send`: the
    send runs on a stream of its own; the receive blocks the compute stream when its data is needed.
    `overlapped`: both run on streams of their own (Megatron-Core's overlap_p2p_communication).
    `sync` makes the host wait for exchanges that block the compute stream. `among` is the number of
    ranks in the communicator that carries a message. Torch makes a communicator of two ranks for a
    single isend or irecv, and takes the group's own communicator for batch_isend_irecv
    (ProcessGroupNCCL.cpp, `pointToPoint`).
    """

    style: Style = "batched"
    bytes: float | tuple[float, ...] = 0.0
    sync: bool = False
    among: int = 2

    def between(self, piece: int, other: int) -> float:
        """Return the bytes of a message between two neighbouring pieces, in either direction."""
        return self.bytes[min(piece, other)] if isinstance(self.bytes, tuple) else self.bytes


def message_stream(verb: str, way: str, stage: int, peer: int, stages: int) -> str:
    """The stream on which a stage sends or receives (`verb`) forward or backward messages (`way`: F
    or B). Messages between two stages stay in order and do not block messages to other stages.

    >>> message_stream("send", "F", 0, 1, 4), message_stream("send", "F", 2, 1, 4)
    ('send F', 'send F 1')
    """
    usual = stage + (1 if (verb == "send") == (way == "F") else -1)
    return f"{verb} {way}" + ("" if peer == usual % stages else f" {peer}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """One step; `mesh` gives the axis sizes, fastest varying first.

    Operations on one stream run in order; `after` names operations of the same stage. Names are
    unique within a stage. If stages end a step `apart`, no stage waits for other stages, and each
    stage begins the next step as soon as it is done. A step then takes as long as the slowest
    stage takes from its first pass on. A stage's wait before its first pass overlaps the step
    before.
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
        """The same program with fewer steps, or None if the pipeline drains between steps."""
        base = self.schedule.base
        return None if base is None else replace(self, schedule=base)

    @property
    def ends(self) -> bool:
        """Whether a step has an end at which the next step begins."""
        return not self.apart and self.schedule.base is None

    def neighbours(self) -> Iterator[tuple[int, int]]:
        """Yield every pair of stages (from, to) between which messages pass, in both directions."""
        pairs = dict.fromkeys(
            (here, there) for (here, _), (there, _) in self.schedule.borders() if here != there
        )
        yield from pairs
        yield from ((there, here) for here, there in pairs if (there, here) not in pairs)
