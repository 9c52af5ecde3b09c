"""Which collectives run beside which computations of a recording.

A collective of another stream may run from the computation behind the last one that it waits for
until the first one that waits for it. While it does, the main stream runs the computations between
the two, and collectives that hold it up; of its seconds each computation has its share.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, count
from sys import maxsize

from sim.program.operations import (
    COMPUTE_STREAM,
    Beside,
    Collective,
    Communicate,
    Compute,
    Operation,
    Segment,
    Stretch,
)


@dataclass(slots=True, eq=False)
class _Flight:
    """A collective in flight: the numbers of the computations from which on it may run, and before
    which it has to be there."""

    call: Collective
    begin: int
    end: int = maxsize


def with_beside(operations: Sequence[Operation], factors: Mapping[str, float]) -> list[Operation]:
    """The operations of a recording, computations of the main stream with what runs beside them:
    collectives of the causes in `factors` for so many times as long."""
    flights, seconds = _flights(operations)
    found: dict[int, list[Beside]] = {}
    sums = [0.0, *accumulate(seconds)]
    held = sorted((one for one in flights if one.begin == one.end), key=lambda one: one.begin)
    places = [one.begin for one in held]
    for one in flights:
        within = held[bisect_left(places, one.begin) : bisect_left(places, one.end)]
        calls = tuple(other.call for other in within if other.call.axes != one.call.axes)
        stretch = Stretch(
            kernels=sums[one.end] - sums[one.begin],
            calls=calls,
            times=factors.get(one.call.cause, 1.0),
        )
        for number in range(one.begin, one.end):
            if seconds[number]:
                found.setdefault(number, []).append(Beside(one.call, stretch))
    numbers = count()
    return [
        replace(own, work=replace(own.work, beside=tuple(found.get(next(numbers), ()))))
        if isinstance(own, Compute) and own.stream == COMPUTE_STREAM
        else own
        for own in operations
    ]


def _flights(operations: Sequence[Operation]) -> tuple[list[_Flight], list[float]]:
    """All collectives, and the seconds of each computation of the main stream."""
    seconds: list[float] = []
    flights: list[_Flight] = []
    reach: dict[str, int] = {}  # how many computations are behind an operation
    carried: dict[str, frozenset[_Flight]] = {}  # what has ended once it has
    last: dict[str, str] = {}
    for own in operations:
        main = own.stream == COMPUTE_STREAM
        before = [*map(str, own.after), *([last[own.stream]] if own.stream in last else [])]
        reach[own.name] = max((reach[name] for name in before), default=0)
        known = {one for name in before for one in carried[name] if one.end == maxsize}
        if main or own.sync:
            for one in known:
                one.end = len(seconds)
            known.clear()
        if isinstance(own, Communicate):
            calls = [call for call in own.calls if isinstance(call, Collective)]
            end = reach[own.name] if main else maxsize
            mine = [_Flight(call, reach[own.name], end) for call in calls]
            flights += mine
            known.update(mine)
        elif main:
            seconds.append(_seconds(own))
            reach[own.name] = len(seconds)
        carried[own.name] = frozenset(known)
        last[own.stream] = own.name
    for one in flights:
        one.end = min(one.end, len(seconds))
    return flights, seconds


def _seconds(operation: Compute) -> float:
    return sum(item.device for item in operation.work.items if isinstance(item, Segment))
