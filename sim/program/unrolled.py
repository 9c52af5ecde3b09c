"""A program written out: every operation of a stage, with the exchanges between passes."""

from collections.abc import Iterator, Sequence

from sim.program.operations import (
    COMPUTE_STREAM,
    INPUT,
    Call,
    Communicate,
    Compute,
    Drained,
    Operation,
    Receive,
    Recent,
    Send,
)
from sim.program.program import Program, message_stream
from sim.program.schedule import Action


def operations(program: Program, stage: int) -> Iterator[tuple[Operation, Action | None]]:
    """Yield all operations of a stage in order, each with its action or None."""
    return _Writer(program, stage).operations()


class _Writer:
    """Writes out the operations of one stage, each under a unique name."""

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
        if self.own.opening is not None:
            yield self.own.opening, None
        order = self.schedule.orders[self.stage]
        actions = self.schedule.actions[self.stage]
        passes = [self.own.ops_by_variant[variant] for variant in actions.variants]
        for place, (action, row) in enumerate(zip(order, actions.rows.tolist(), strict=True)):
            brought: list[Operation] = list(self._before(place, action))
            yield from ((operation, action) for operation in brought)
            received = tuple(op.name for op in brought if op.stream != COMPUTE_STREAM)
            ops = passes[row]
            if ops.passes:
                yield from zip(map(self._settled, ops), ops.passes, strict=True)
            else:
                yield from ((self._of_pass(op, action, received), action) for op in ops)
            yield from ((operation, action) for operation in self._behind(place, action))
        for operation in self.own.closing:
            yield self._settled(operation), None
        yield from ((operation, None) for operation in self.own.beside)

    def _settled(self, operation: Operation) -> Operation:
        """An operation whose name is already unique in the step, with plain names in `after`."""
        after = tuple(name for cause in operation.after for name in self._name(cause))
        return _named(operation, operation.name, after)

    def _of_pass(
        self, operation: Operation, action: Action, received: tuple[str, ...]
    ) -> Operation:
        """Return an operation of a variant as an operation of one pass, with names of this pass."""
        name = f"{action} {operation.name}".rstrip()
        after = tuple(
            name for cause in operation.after for name in self._name(cause, action, received)
        )
        if isinstance(operation, Compute):
            self._computed.append(name)
        elif self.own.opening is not None and operation.stream not in self._issued:
            after = (*after, self.own.opening.name)  # the host launches what other streams run, too
        return _named(operation, name, after)

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
        calls: list[Call] = [*self._sends(action)]
        calls += [call for later in following for call in self._receives(later)]
        yield from self._exchanged(place + 1, calls)

    def _exchanged(self, number: int, calls: Sequence[Call]) -> Iterator[Communicate]:
        if calls:
            yield Communicate(
                name=f"exchange {number}", calls=tuple(calls), sync=self.exchange.sync
            )

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

    def _stream(self, verb: str, action: Action, peer: int) -> str:
        return message_stream(verb, _direction(action), self.stage, peer, self.schedule.stages)

    def _receives(self, action: Action) -> tuple[Receive, ...]:
        source = self.schedule.source(self.stage, action)
        if source is None or source[0] == self.stage:
            return ()
        here = (self.stage, action.chunk)
        key, size = self._key(action, source, here), self._bytes(source, here)
        return (Receive(source=source[0], bytes=size, key=key, among=self.exchange.among),)

    def _sends(self, action: Action) -> tuple[Send, ...]:
        target = self.schedule.target(self.stage, action)
        if target is None or target[0] == self.stage:
            return ()
        here = (self.stage, action.chunk)
        key, size = self._key(action, here, target), self._bytes(here, target)
        return (Send(to=target[0], bytes=size, key=key, among=self.exchange.among),)

    def _bytes(self, source: tuple[int, int], target: tuple[int, int]) -> float:
        pieces = self.schedule.pieces
        (a, b), (c, d) = source, target
        return self.exchange.between(pieces[a][b], pieces[c][d])

    def _key(self, action: Action, source: tuple[int, int], target: tuple[int, int]) -> str:
        pieces = self.schedule.pieces
        (a, b), (c, d) = source, target
        return f"{_direction(action)}{action.microbatch} {pieces[a][b]}>{pieces[c][d]}"


def _named(operation: Operation, name: str, after: tuple[str, ...]) -> Operation:
    """Return an operation with another name and other names in `after`. `dataclasses.replace` takes
    three times as long, and a step has tens of thousands of operations."""
    stream, sync, memory = operation.stream, operation.sync, operation.memory
    if isinstance(operation, Compute):
        work = operation.work
        return Compute(name=name, work=work, after=after, stream=stream, sync=sync, memory=memory)
    return Communicate(
        name=name, calls=operation.calls, after=after, stream=stream, sync=sync, memory=memory
    )


def _direction(action: Action) -> str:
    """F or B: the direction of a pass through the pipeline."""
    return "F" if action.kind == "F" else "B"
