"""Flow arrows of a trace: from who sends to who receives, from who came last to who waited.

Trace Event Format (Google, 2016), "Flow Events": `s` where an arrow begins, `f` with `bp` "e" in
the slice that it ends in.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from sim.jobs.traces.trace_events import Event

Way = tuple[int, int] | None


class _End(NamedTuple):
    """A slice in which a role of this stage takes part in a transfer that it was `ready` for."""

    slice: Event
    stage: int
    ready: float


class Arrows:
    """The ends of all transfers that were written so far."""

    def __init__(self) -> None:
        self._ends: defaultdict[int, list[_End]] = defaultdict(list)
        self._ways: dict[int, Way] = {}

    def note(self, number: int, way: Way, slice: Event, stage: int, ready: float) -> None:
        """A slice takes part in the transfer of this number, which goes this way if any."""
        self._ends[number].append(_End(slice, stage, ready))
        self._ways[number] = way

    def events(self) -> Iterator[Event]:
        """Two events an arrow."""
        for number, ends in self._ends.items():
            way = self._ways[number]
            if way is None:
                source = max(ends, key=lambda end: end.ready)
                others = [end for end in ends if end is not source]
            else:
                sources = [end for end in ends if end.stage == way[0]]
                if not sources:
                    continue
                source, others = sources[0], [end for end in ends if end.stage == way[1]]
            for target in others:
                yield from _arrow(f"{number}.{target.slice['pid']}", source.slice, target.slice)


def _arrow(name: str, source: Event, target: Event) -> Iterator[Event]:
    begin, what = source["ts"], source["args"]["cause"]
    end = min(max(begin, target["ts"]), target["ts"] + target["dur"])
    for phase, slice, ts in (("s", source, begin), ("f", target, max(begin, end))):
        place = {"pid": slice["pid"], "tid": slice["tid"], "ts": ts}
        more = {"bp": "e"} if phase == "f" else {}
        yield {"ph": phase, "cat": "transfer", "name": what, "id": name, **place, **more}
