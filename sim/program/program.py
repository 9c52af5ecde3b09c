"""A program: what every rank of each pipeline stage does in one training step.

It is SPMD: all ranks of a stage run the same operations. What a pass does is written once for all
microbatches (a routine); the schedule says in which order passes run.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sim.program.actions import Action, Occasion
from sim.program.memory import in_a_row
from sim.program.operations import (
    COMPUTE_STREAM,
    INPUT,
    Call,
    Collective,
    Communicate,
    Compute,
    Drained,
    Operation,
    Receive,
    Recent,
    Send,
    Work,
)
from sim.program.schedule import Schedule

Routine = tuple[Operation, ...]
Style = Literal["batched", "async-send", "overlapped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """How neighbouring stages hand over activations and their gradients, `bytes` each.

    `batched`: after every pass one blocking exchange sends its output and receives the next pass's
    input (Megatron-LM's send_forward_recv_backward and its kin, batch_isend_irecv). `async-send`:
    the send runs on a stream of its own, the receive blocks the compute stream when its data is
    needed. `overlapped`: both run on streams of their own (Megatron-Core's
    overlap_p2p_communication). `sync` makes the host wait for what blocks the compute stream.
    """

    style: Style = "batched"
    bytes: float = 0.0
    sync: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Stage:
    """What the ranks of one stage do: before the passes, in each of them, and after the last one.

    `routines` has one entry for every occasion in the stage's order. `resident` are the bytes by
    part that are allocated from one step to the next.
    """

    opening: tuple[Operation, ...] = ()
    routines: Mapping[Occasion, Routine] = field(default_factory=dict)
    closing: tuple[Operation, ...] = ()
    resident: Mapping[str, float] = field(default_factory=dict)

    @property
    def all_operations(self) -> tuple[Operation, ...]:
        """Its operations, those of passes once for each occasion."""
        passes = (operation for routine in self.routines.values() for operation in routine)
        return (*self.opening, *passes, *self.closing)

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """The distinct calls of its operations."""
        return tuple(_calls(self.all_operations))

    @cached_property
    def scopes(self) -> frozenset[tuple[tuple[str, ...], tuple[int, ...] | None]]:
        """The axes and stages that its collectives name."""
        collectives = (call for call in self.calls if isinstance(call, Collective))
        return frozenset((call.axes, call.stages) for call in collectives)

    @cached_property
    def calls_of_passes(self) -> tuple[Call, ...]:
        """Those of its passes."""
        return tuple(_calls(op for routine in self.routines.values() for op in routine))

    @cached_property
    def streams_of_passes(self) -> frozenset[str]:
        """The streams on which its passes run."""
        return frozenset(op.stream for routine in self.routines.values() for op in routine)

    @cached_property
    def pass_totals(self) -> NDArray[np.float64]:
        """Bytes that each routine leaves, and those at its worst moment [2, routines]."""
        uses = [in_a_row(op.memory for op in routine) for routine in self.routines.values()]
        return np.array([[use.left for use in uses], [use.highest for use in uses]])

    @cached_property
    def end_totals(self) -> tuple[float, float, float]:
        """Bytes before the passes, at the worst moment until then, and at that behind the passes
        above what they leave."""
        resident = sum(self.resident.values())
        opening = in_a_row(op.memory for op in self.opening)
        closing = in_a_row(op.memory for op in self.closing)
        return resident + opening.left, resident + opening.highest, closing.highest

    @cached_property
    def calls_inside(self) -> tuple[Call, ...]:
        """Those inside its computations."""
        return tuple(_calls(op for op in self.all_operations if isinstance(op, Compute)))


def _calls(operations: Iterable[Operation]) -> dict[Call, None]:
    """The distinct calls of operations in order."""
    seen: dict[int, Work] = {}
    calls: dict[Call, None] = {}
    for operation in operations:
        if isinstance(operation, Communicate):
            calls |= dict.fromkeys(operation.calls)
        elif id(operation.work) not in seen:
            calls |= dict.fromkeys(operation.work.collectives(seen))
    return calls


@dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """One step; `mesh` gives the axis sizes, fastest varying first.

    Operations on one stream run in order; `after` names operations of the same stage. Names are
    unique within a stage.
    """

    mesh: Mapping[str, int]
    schedule: Schedule
    stages: tuple[Stage, ...]
    exchange: Exchange = field(default_factory=Exchange)

    def neighbours(self) -> Iterator[tuple[int, int]]:
        """Every pair of stages (from, to) between which messages pass, both ways."""
        owners = self.schedule.owners
        pairs = dict.fromkeys(
            (here, there) for (here, _), (there, _) in pairwise(owners) if here != there
        )
        yield from pairs
        yield from ((there, here) for here, there in pairs if (there, here) not in pairs)

    def operations(self, stage: int) -> Iterator[tuple[Operation, Action | None]]:
        """All operations of a stage in order, passes written out with their exchanges; each with
        the action that it belongs to, if to any."""
        return _Writer(self, stage).operations()


class _Writer:
    """Writes out what one stage does, with names of its own for every operation."""

    def __init__(self, program: Program, stage: int) -> None:
        self.schedule, self.exchange = program.schedule, program.exchange
        self.stage, self.own = stage, program.stages[stage]
        self._computed: list[str] = []  # computations of passes so far
        self._issued: dict[str, str] = {}  # the last operation on each stream

    def operations(self) -> Iterator[tuple[Operation, Action | None]]:
        for operation, action in self._written():
            self._issued[operation.stream] = operation.name
            yield operation, action

    def _written(self) -> Iterator[tuple[Operation, Action | None]]:
        for operation in self.own.opening:
            yield self._settled(operation), None
        order = self.schedule.orders[self.stage]
        actions = self.schedule.actions[self.stage]
        routines = [self.own.routines[occasion] for occasion in actions.occasions]
        for place, (action, row) in enumerate(zip(order, actions.rows.tolist(), strict=True)):
            brought: list[Operation] = list(self._before(place, action))
            yield from ((operation, action) for operation in brought)
            received = tuple(op.name for op in brought if op.stream != COMPUTE_STREAM)
            for operation in routines[row]:
                yield self._of_pass(operation, action, received), action
            yield from ((operation, action) for operation in self._behind(place, action))
        for operation in self.own.closing:
            yield self._settled(operation), None

    def _settled(self, operation: Operation) -> Operation:
        """An operation outside of the passes, with the names of what it waits for."""
        after = tuple(name for cause in operation.after for name in self._name(cause))
        return replace(operation, after=after)

    def _of_pass(
        self, operation: Operation, action: Action, received: tuple[str, ...]
    ) -> Operation:
        """An operation of a routine as one of this very pass."""
        name = f"{action} {operation.name}".rstrip()
        after = tuple(
            name for cause in operation.after for name in self._name(cause, action, received)
        )
        if isinstance(operation, Compute):
            self._computed.append(name)
        return replace(operation, name=name, after=after)

    def _name(
        self,
        cause: str | Recent | Drained,
        action: Action | None = None,
        received: tuple[str, ...] = (),
    ) -> tuple[str, ...]:
        if isinstance(cause, Drained):
            return (self._issued[cause.stream],) if cause.stream in self._issued else ()
        if isinstance(cause, Recent) and cause.back <= len(self._computed):
            return (self._computed[-cause.back],)
        if isinstance(cause, Recent) or cause == INPUT:
            return received
        return (cause if action is None else f"{action} {cause}".rstrip(),)

    def _before(self, place: int, action: Action) -> Iterator[Communicate]:
        if self.exchange.style != "batched":
            yield from self._receipt(action)
        elif place == 0:
            yield from self._exchanged(0, self._receives(action))

    def _behind(self, place: int, action: Action) -> Iterator[Communicate]:
        if self.exchange.style != "batched":
            yield from self._dispatch(action)
            return
        order = self.schedule.orders[self.stage]
        following = order[place + 1 : place + 2]
        calls = (*self._sends(action), *(c for nxt in following for c in self._receives(nxt)))
        yield from self._exchanged(place + 1, calls)

    def _exchanged(self, number: int, calls: tuple[Call, ...]) -> Iterator[Communicate]:
        if calls:
            yield Communicate(name=f"exchange {number}", calls=calls, sync=self.exchange.sync)

    def _receipt(self, action: Action) -> Iterator[Communicate]:
        for call in self._receives(action):
            beside = self.exchange.style == "overlapped"
            yield Communicate(
                name=f"receive {call.key}",
                calls=(call,),
                stream=self._stream("receive", action, call.source) if beside else COMPUTE_STREAM,
                sync=self.exchange.sync and not beside,
            )

    def _dispatch(self, action: Action) -> Iterator[Communicate]:
        for call in self._sends(action):
            yield Communicate(
                name=f"send {call.key}",
                calls=(call,),
                after=(str(action),),
                stream=self._stream("send", action, call.to),
            )

    def _stream(self, what: str, action: Action, peer: int) -> str:
        return message_stream(what, _direction(action), self.stage, peer, self.schedule.stages)

    def _receives(self, action: Action) -> tuple[Receive, ...]:
        source = self.schedule.source(self.stage, action)
        if source is None or source[0] == self.stage:
            return ()
        key = self._key(action, source, (self.stage, action.chunk))
        return (Receive(source=source[0], bytes=self.exchange.bytes, key=key),)

    def _sends(self, action: Action) -> tuple[Send, ...]:
        target = self.schedule.target(self.stage, action)
        if target is None or target[0] == self.stage:
            return ()
        key = self._key(action, (self.stage, action.chunk), target)
        return (Send(to=target[0], bytes=self.exchange.bytes, key=key),)

    def _key(self, action: Action, source: tuple[int, int], target: tuple[int, int]) -> str:
        pieces = self.schedule.pieces
        (a, b), (c, d) = source, target
        return f"{_direction(action)}{action.microbatch} {pieces[a][b]}>{pieces[c][d]}"


def _direction(action: Action) -> str:
    """F or B: which way through the pipeline a pass goes."""
    return "F" if action.kind == "F" else "B"


def message_stream(what: str, way: str, stage: int, peer: int, stages: int) -> str:
    """The stream on which a stage sends or receives forward (F) or backward (B): messages between
    two stages are in order, and in no other's way.

    >>> message_stream("send", "F", 0, 1, 4), message_stream("send", "F", 2, 1, 4)
    ('send F', 'send F 1')
    """
    usual = stage + (1 if (what == "send") == (way == "F") else -1)
    return f"{what} {way}" + ("" if peer == usual % stages else f" {peer}")
