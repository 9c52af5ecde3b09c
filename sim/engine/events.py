"""Events of SimPy's clock by callback, and alarms that ring at a moment to the bit."""

from collections.abc import Callable
from heapq import heappush
from typing import Any

import simpy
from simpy.core import SimTime
from simpy.events import NORMAL, Event, EventPriority

# SimPy's own events have priority 0 or 1.
_FLOWS, _BEHIND_FLOWS = EventPriority(2), EventPriority(3)


class Alarm(Event):
    """Calls `act` with itself `at` a moment of the clock.

    A timeout has a delay, and now + (moment - now) is not always the moment: what is symmetric
    would come apart by a rounding, and go on like that. So this one writes the moment itself into
    SimPy's queue, for which there is no public way.
    """

    def __init__(
        self, env: simpy.Environment, at: SimTime, act: Callable[[Any], Any], value: Any = None
    ) -> None:
        self.env, self.callbacks, self._value, self._ok = env, [act], value, True
        heappush(env._queue, (at, NORMAL, next(env._eid), self))


def then(event: Event, act: Callable[[Event], None]) -> None:
    """Call `act` when the event fires."""
    assert event.callbacks is not None, "the event has fired already"
    event.callbacks.append(act)


def at_the_end_of_the_instant(event: Event, *, behind_flows: bool = False) -> None:
    """Let an event fire once nothing else happens at this moment: that is when flows settle, and
    what has to see them settled comes `behind_flows`."""
    event._ok, event._value = True, None
    event.env.schedule(event, priority=_BEHIND_FLOWS if behind_flows else _FLOWS)


def carried(event: Event) -> Any:
    """The value that a fired event brings."""
    return event.value
