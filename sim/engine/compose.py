"""Folding in time: kernels between two points of interaction become one step on the clock.

A collective inside one role, on links that nothing else uses meanwhile, is part of that step too
(tensor parallelism on NVSwitch). Composition is exact: with the device ready at r and the host
free at h, two steps (A, H, B) in a row end at max(r + A1 + A2, h + max(B1 + A2, H1 + B2)).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from sim.engine.communicators import Scope, calls_of, scope_of
from sim.engine.folded import Meet, Pass, Step
from sim.engine.transfers import Desk
from sim.program import Collective, Communicate, Compute, Operation, Segment, Work

COMPUTE = "compute"


@dataclass(frozen=True, slots=True)
class Span:
    """Time on the device, time of the host, and host-to-end lead (s); parts by cause."""

    device: float = 0.0
    host: float = 0.0
    lead: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)

    def then(self, other: "Span") -> "Span":
        parts = dict(self.parts)
        for cause, seconds in other.parts.items():
            parts[cause] = parts.get(cause, 0.0) + seconds
        return Span(
            self.device + other.device,
            self.host + other.host,
            max(self.lead + other.device, self.host + other.lead),
            parts,
        )

    def slowed(self, cause: str, seconds: float, interference: float) -> "Span":
        """At 1 - `interference` of its pace while a collective of so many seconds runs beside it.

        What it loses is put down to `cause`.
        """
        lost = min(interference * seconds, self.device * interference / (1.0 - interference))
        return self._longer(cause, lost, self.lead + lost)

    def beside(self, cause: str, seconds: float, interference: float = 0.0) -> "Span":
        """Slowed by a collective that starts together with this span, and ending with it at last.

        >>> Span(3.0, 0.0, 3.0).beside("communication", 1.0, 0.4).device
        3.4
        >>> Span(3.0, 0.0, 3.0).beside("communication", 9.0, 0.4).device
        9.0
        """
        span = self.slowed(cause, seconds, interference)
        return span._longer(cause, max(seconds - span.device, 0.0), max(span.lead, seconds))

    def _longer(self, cause: str, seconds: float, lead: float) -> "Span":
        parts = {**self.parts, cause: self.parts.get(cause, 0.0) + seconds}
        return Span(self.device + seconds, self.host, lead, parts if seconds else self.parts)


def span_of(segment: Segment, slowdown: float) -> Span:
    """A segment on a device whose kernels take `slowdown` times as long."""
    device = segment.device * slowdown
    lead = max(segment.lead, segment.device, segment.host) + device - segment.device
    return Span(device, segment.host, lead, {segment.cause: device})


def compose(
    operations: Sequence[Operation], desk: Desk, stage: int, slowdown: float
) -> dict[str, list[Step]]:
    """The steps of a role, per stream."""
    composer = _Composer(operations, desk, stage, slowdown)
    for position, operation in enumerate(operations):
        composer.add(position, operation)
    return composer.streams


class _Composer:
    def __init__(
        self, operations: Sequence[Operation], desk: Desk, stage: int, slowdown: float
    ) -> None:
        self.desk, self.stage, self.slowdown = desk, stage, slowdown
        self.streams: dict[str, list[Step]] = {}
        self._count = 0
        self._index: dict[str, int] = {}
        self._whole: dict[int, Span] = {}
        self._quiet_until: dict[int, float] = {}
        self._earliest = _earliest_overlap(operations, stage)

    def add(self, position: int, operation: Operation) -> None:
        after = tuple(self._index[name] for name in operation.after)
        stream = self.streams.setdefault(operation.stream, [])
        if isinstance(operation, Communicate):
            numbers = (self.desk.transfer(call, self.stage) for call in operation.calls)
            met = tuple(number for number in numbers if number is not None)
            stream.append(Meet(self._next(), operation.name, met, after, sync=operation.sync))
        elif position <= self._quiet(operation.work):
            whole = self._merged(operation.work)
            stream.append(self._pass(operation, whole, after=after))
        else:
            stream.extend(self._expanded(operation, after))
        self._index[operation.name] = stream[-1].index

    def _next(self) -> int:
        self._count += 1
        return self._count - 1

    def _pass(
        self,
        operation: Compute,
        span: Span,
        *,
        name: str = "",
        after: tuple[int, ...] = (),
        joins: tuple[int, ...] = (),
    ) -> Pass:
        return Pass(
            self._next(),
            name or operation.name,
            span.device,
            span.host,
            span.lead,
            tuple(span.parts.items()),
            after,
            operation.sync and not name,
            operation.phase,
            operation.microbatch,
            operation.chunk,
            joins,
        )

    def _merged(self, work: Work) -> Span:
        if id(work) not in self._whole:
            whole = Span()
            for item in work.items:
                whole = whole.then(self._span(item))
            self._whole[id(work)] = whole
        return self._whole[id(work)]

    def _span(self, item: Segment | Collective) -> Span:
        if isinstance(item, Segment):
            span = span_of(item, self.slowdown)
            for call in item.beside:
                span = span.beside(call.cause, self._seconds(call), self.desk.interference)
            return span
        seconds = self._seconds(item)
        return Span(seconds, 0.0, seconds, {item.cause: seconds})

    def _seconds(self, call: Collective) -> float:
        return self.desk.alone(call, self.stage)[1]

    def _quiet(self, work: Work) -> float:
        """The last position at which all collectives of this work have their links alone."""
        if id(work) not in self._quiet_until:
            scopes = {scope_of(call, self.stage): call for call in work.collectives()}
            self._quiet_until[id(work)] = min(
                (self._quiet_scope(scope, call) for scope, call in scopes.items()),
                default=float("inf"),
            )
        return self._quiet_until[id(work)]

    def _quiet_scope(self, scope: Scope, call: Collective) -> float:
        equals, _ = self.desk.alone(call, self.stage)
        rivals, foreign = self.desk.rivals(scope)
        if not equals or foreign:
            return -1.0
        return min(
            (self._earliest.get(rival, float("inf")) for rival in rivals), default=float("inf")
        )

    def _expanded(self, operation: Compute, after: tuple[int, ...]) -> list[Step]:
        """Every segment and every collective of an operation as a step of its own."""
        steps: list[Step] = []
        items = operation.work.items
        for number, item in enumerate(items):
            name = "" if number == len(items) - 1 else f"{operation.name}.{number}"
            if isinstance(item, Collective):
                met = self._transfers((item,), f"{operation.name}.{number}")
                steps.append(Meet(self._next(), name or operation.name, met, after))
            else:
                steps += self._segment(operation, item, number, name, after)
            after = ()
        return steps

    def _segment(
        self, operation: Compute, segment: Segment, number: int, name: str, after: tuple[int, ...]
    ) -> list[Step]:
        span = span_of(segment, self.slowdown)
        if not segment.beside:
            return [self._pass(operation, span, name=name, after=after)]
        for call in segment.beside:
            span = span.slowed(call.cause, self._seconds(call), self.desk.interference)
        met = self._transfers(segment.beside, f"{operation.name}.{number}")
        inner = f"{operation.name}.{number} beside"
        first = self._pass(operation, span, name=inner, after=after, joins=met)
        return [first, Meet(self._next(), name or operation.name, met, (), True)]

    def _transfers(self, calls: Iterable[Collective], prefix: str) -> tuple[int, ...]:
        named = (replace(call, name=f"{prefix} {call.name}") for call in calls)
        numbers = (self.desk.transfer(call, self.stage) for call in named)
        return tuple(number for number in numbers if number is not None)


def _earliest_overlap(operations: Sequence[Operation], stage: int) -> dict[Scope, float]:
    """Per scope, the position of the last pass that surely ends before its first side transfer.

    Calls on the compute stream block it, so they never run beside a pass.
    """
    position = {operation.name: i for i, operation in enumerate(operations)}
    starts: dict[str, float] = {}
    last_on: dict[str, float] = {}
    earliest: dict[Scope, float] = {}
    for i, operation in enumerate(operations):
        if operation.stream == COMPUTE:
            starts[operation.name] = float(i)
            continue
        causes = [starts.get(name, float(position[name])) for name in operation.after]
        start = max([*causes, last_on.get(operation.stream, -1.0)])
        starts[operation.name] = last_on[operation.stream] = start
        for call in calls_of(operation):
            scope = scope_of(call, stage)
            earliest[scope] = min(earliest.get(scope, float("inf")), start)
    return earliest
