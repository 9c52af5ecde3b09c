"""Which collectives run beside which computations of a recording?

A collective of another stream can begin after the last computation for which it waits. It ends
before the first computation that waits for it. In between, the main stream runs computations and
its own collectives. Each computation overlaps only with its share of the collective's seconds.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, count
from sys import maxsize
from typing import Any

from sim.program.operations import (
    COMPUTE_STREAM,
    Beside,
    Collective,
    Communicate,
    Compute,
    Operation,
    Segment,
    Stretch,
    beside_kernels,
)


@dataclass(slots=True, eq=False)
class _Flight:
    """A collective with the computations that may run beside it. `begin` is the number of the first
    such computation, `end` the number of the computation that waits for the collective."""

    call: Collective
    begin: int
    end: int = maxsize


def with_beside(operations: Sequence[Operation], factors: Mapping[str, float]) -> list[Operation]:
    """The operations of a recording with the work that runs beside them. A computation of the main
    stream names the collectives beside it; a collective has the seconds of the kernels beside it.
    `factors` has a factor by cause: collectives of the cause slow kernels as if they lasted that
    many times as long."""
    flights, seconds = _flights(operations)
    found: dict[int, list[Beside]] = {}
    sums = [0.0, *accumulate(seconds)]
    for flight in flights:
        if flight.call.beside:
            flight.call = beside_kernels(flight.call, sums[flight.end] - sums[flight.begin])
    held = sorted(
        (flight for flight in flights if flight.begin == flight.end),
        key=lambda flight: flight.begin,
    )
    places = [flight.begin for flight in held]
    for flight in flights:
        within = held[bisect_left(places, flight.begin) : bisect_left(places, flight.end)]
        calls = tuple(other.call for other in within if other.call.axes != flight.call.axes)
        stretch = Stretch(
            kernels=sums[flight.end] - sums[flight.begin],
            calls=calls,
            times=factors.get(flight.call.cause, 1.0),
        )
        for number in range(flight.begin, flight.end):
            if seconds[number]:
                found.setdefault(number, []).append(Beside(flight.call, stretch))
    numbers, flown = count(), iter(flights)
    done: list[Operation] = []
    for operation in operations:
        if isinstance(operation, Compute) and operation.stream == COMPUTE_STREAM:
            beside = tuple(found.get(next(numbers), ()))
            operation = replace(operation, work=replace(operation.work, beside=beside))
        elif isinstance(operation, Communicate):
            slowed: tuple[Any, ...] = tuple(
                next(flown).call if isinstance(call, Collective) else call
                for call in operation.calls
            )
            operation = replace(operation, calls=slowed)
        done.append(operation)
    return done


def _flights(operations: Sequence[Operation]) -> tuple[list[_Flight], list[float]]:
    """All collectives in order, and the seconds of each computation of the main stream."""
    seconds: list[float] = []
    flights: list[_Flight] = []
    reach: dict[str, int] = {}  # by operation: computations that have ended when it ends
    carried: dict[str, frozenset[_Flight]] = {}  # by operation: collectives that end before its end
    last: dict[str, str] = {}
    for operation in operations:
        main = operation.stream == COMPUTE_STREAM
        before = [
            *map(str, operation.after),
            *([last[operation.stream]] if operation.stream in last else []),
        ]
        reach[operation.name] = max((reach[name] for name in before), default=0)
        known = {flight for name in before for flight in carried[name] if flight.end == maxsize}
        if main or operation.sync:
            for flight in known:
                flight.end = len(seconds)
            known.clear()
        if isinstance(operation, Communicate):
            calls = [call for call in operation.calls if isinstance(call, Collective)]
            end = reach[operation.name] if main else maxsize
            mine = [_Flight(call, reach[operation.name], end) for call in calls]
            flights += mine
            known.update(mine)
        elif main:
            items = operation.work.items
            seconds.append(sum(item.device for item in items if isinstance(item, Segment)))
            reach[operation.name] = len(seconds)
        carried[operation.name] = frozenset(known)
        last[operation.stream] = operation.name
    for flight in flights:
        flight.end = min(flight.end, len(seconds))
    return flights, seconds
