"""Events of SimPy's clock with callbacks, and a clock whose alarms ring at absolute times."""

from collections.abc import Callable
from heapq import heappush
from math import frexp
from typing import Any

import simpy
from simpy.events import NORMAL, Event, EventPriority

# SimPy's own events have priority 0 or 1.
_FLOWS, _BEHIND_FLOWS = EventPriority(2), EventPriority(3)
_CELLS = 2.0**40  # cells for each power of two: a cell is about 1e-12 of a moment
_EDGE = 0.01  # share of a cell: many times the rounding error of a double


class Clock(simpy.Environment):
    """SimPy's clock, on which moments that differ only by rounding are one moment.

    Equal ranks add up equal durations in different orders, so their times would differ by rounding.
    Where links are shared, such a difference can grow. An unfolded run could then give another step
    time than a folded run.
    """

    def __init__(self) -> None:
        super().__init__()
        self._moments: dict[int, float] = {}
        self._most = 1000

    def alarm(self, at: float, act: Callable[[Any], Any], value: Any = None) -> Event:
        """Call `act` at the time `at` with an event that carries a value.

        SimPy itself only has delays, and now + (at - now) may differ from `at` by rounding.
        """
        event = Event(self)
        event.callbacks, event._ok, event._value = [act], True, value
        heappush(self._queue, (self._moment(at), NORMAL, next(self._eid), event))
        return event

    def _moment(self, at: float) -> float:
        """The known moment that equals this time up to rounding, or the time as a new moment."""
        mantissa, exponent = frexp(at)
        place = mantissa * _CELLS
        cell = int(place)
        key, inside, known = (exponent << 42) + cell, place - cell, self._moments
        moment = known.get(key)
        if moment is None and not _EDGE < inside < 1.0 - _EDGE:
            moment = known.get(key - 1 if inside < 0.5 else key + 1)
        if moment is None:
            known[key] = at
            if len(known) > self._most:
                self._forget()
            return at
        return max(moment, self._now)

    def _forget(self) -> None:
        """Forget the moments that are over."""
        now = self._now
        self._moments = {key: moment for key, moment in self._moments.items() if moment >= now}
        self._most = 1000 + 2 * len(self._moments)


def then(event: Event, act: Callable[[Event], None]) -> None:
    """Call `act` when the event fires."""
    assert event.callbacks is not None, "the event has fired already"
    event.callbacks.append(act)


def at_the_end_of_the_instant(event: Event, *, behind_flows: bool = False) -> None:
    """Let an event fire once nothing else happens at this moment. Rates of flows are set in this
    way; events that need these rates fire `behind_flows`."""
    event._ok, event._value = True, None
    event.env.schedule(event, priority=_BEHIND_FLOWS if behind_flows else _FLOWS)


def carried(event: Event) -> Any:
    """The value that a fired event carries."""
    return event.value
