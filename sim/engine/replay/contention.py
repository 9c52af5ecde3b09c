"""Would transfers of a program that was played without a clock have slowed each other?

Alone, traffic moves at the rate of its narrowest link and takes a share of every other link. The
replay is exact as long as the shares on each link never add up to more than one. Otherwise max-min
fairness slows some traffic, and only the clock knows which.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sim.config.dataclass import dataclass
from sim.engine.folded import LinkClass, Traffic
from sim.engine.replay.writing import Writer
from sim.engine.tracks import Floats
from sim.program.operations import Collective, Compute, Work

Flags = NDArray[np.bool_]

_MOMENTS: tuple[Literal["start", "host", "end"], ...] = ("start", "host", "end")
ROUNDING = 1e-9  # share of the step: rounding errors of times, which the clock removes (`events`)
_FULL = 1.0 + 1e-6


@dataclass(frozen=True, slots=True)
class _Use:
    """Traffic of one stream on one link: its share of the link [columns], and when each transfer
    begins and ends [times, columns]."""

    share: Floats
    begin: Floats
    end: Floats

    def column(self, number: int) -> "_Use":
        """The use in one column alone."""
        here = slice(number, number + 1)
        return _Use(self.share[here], self.begin[:, here], self.end[:, here])


@dataclass(frozen=True, slots=True)
class _Spans:
    """Spans of time in order, which do not overlap."""

    begin: Floats
    end: Floats

    @classmethod
    def covered(cls, uses: Sequence[_Use]) -> "_Spans":
        """The spans in which any of the uses goes on, for uses with a single column."""
        begin = np.concatenate([use.begin[:, 0] for use in uses])
        end = np.concatenate([use.end[:, 0] for use in uses])
        order = np.argsort(begin)
        begin, end = begin[order], np.maximum.accumulate(end[order])
        first = np.append(True, begin[1:] >= end[:-1])
        return cls(begin[first], end[np.append(first[1:], True)])

    def overlap(self, start: Floats, end: Floats) -> Flags:
        """Whether each of some intervals overlaps any of the spans."""
        next_span = np.searchsorted(self.end, start, side="right")
        return np.append(self.begin, np.inf)[next_span] < end


def contends(writer: Writer) -> Flags:
    """Whether traffic asked some link for more than its capacity [columns]."""
    outside = _outside(writer)
    found = np.zeros(len(writer.estimates), dtype=bool)
    for uses in outside.values():
        if not found.all():
            found |= _overfull(uses)
    loading: dict[int, list[int]] = defaultdict(list)
    for stage in range(len(writer.estimate.machine.desks)):
        for link in _links_inside(writer, stage):
            loading[link].append(stage)
    shared = {}
    for link, stages in loading.items():
        end = writer.passes_end[stages].max(axis=0)
        beside = [use for use in outside.get(link, ()) if (use.begin < end).any()]
        if beside or len(stages) > 1:
            shared[link] = beside, stages
    for number in np.flatnonzero(~found).tolist() if shared else ():
        own = {
            link: ([use.column(number) for use in beside], stages)
            for link, (beside, stages) in shared.items()
        }
        found[number] = _overfull_inside(writer.column(number), own)
    return found


def _overfull_inside(writer: Writer, shared: Mapping[int, tuple[list[_Use], list[int]]]) -> bool:
    """Whether collectives inside computations and other traffic ask a shared link for more than its
    capacity. `writer` has a single column; `shared` has each link's other uses, and the stages
    whose computations load it."""
    computations = list(_computations(writer))
    for link, (uses, stages) in shared.items():
        end = writer.passes_end[stages].max()
        beside = [use for use in uses if (use.begin < end).any()]
        alone = len(stages) == 1
        if alone and not beside:
            continue
        busy = _Spans.covered(beside) if alone else None
        inside = (use for computation in computations if link in computation.links
                  for use in computation.uses(link, busy))  # fmt: skip
        if _overfull([*beside, *inside]).any():
            return True
    return False


def _links_inside(writer: Writer, stage: int) -> set[int]:
    """The links that collectives inside a stage's computations load in some column."""
    one_of_each = {id(e.program): e for e in writer.estimates}.values()
    return {
        link
        for e in one_of_each
        for call in e.program.stages[stage].calls_inside
        for link, _ in shares(e.machine.desks[stage].traffic(call, stage), e.machine.links)
    }


def _outside(writer: Writer) -> dict[int, list[_Use]]:
    """The uses by traffic outside of computations, by link."""
    uses: dict[int, list[_Use]] = {}
    links = [e.machine.links for e in writer.estimates]
    for traffic, begun in (*writer.messages(), *writer.collectives()):
        begin = begun + np.array([own.latency for own in traffic])
        end = begin + np.array([own.seconds for own in traffic])
        taken = [dict(shares(*pair)) for pair in zip(traffic, links, strict=True)]
        for link in dict.fromkeys(link for own in taken for link in own):
            share = np.array([own.get(link, 0.0) for own in taken])
            uses.setdefault(link, []).append(_Use(share, begin, end))
    return uses


def shares(traffic: Traffic, links: Sequence[LinkClass]) -> Iterator[tuple[int, float]]:
    """Yield each link that traffic loads, with the share of the link that it takes if alone."""
    if traffic.seconds > 0.0:
        rate = traffic.size / traffic.seconds
        for link, load in traffic.loads:
            yield link, rate * load / links[link].capacity


def _overfull(uses: Sequence[_Use]) -> Flags:
    """Whether streams that share a link ever ask for more than all of it [columns]."""
    asked = sum((use.share for use in uses), np.zeros(1))
    over = np.zeros(len(asked), dtype=bool)
    if not (asked > _FULL).any():
        return over
    begin = np.concatenate([use.begin for use in uses])
    end = np.concatenate([use.end for use in uses])
    # Traffic that ends as other traffic begins leaves the link to it.
    end = end - ROUNDING * end.max(axis=0, initial=0.0)
    left = _without_turns(begin, end)
    share = np.concatenate([np.broadcast_to(use.share, use.begin.shape)[:, left] for use in uses])
    times = np.concatenate((begin[:, left], end[:, left]))
    changes = np.concatenate((share, -share))
    order = np.lexsort((changes, times), axis=0)
    sums = np.cumsum(np.take_along_axis(changes, order, axis=0), axis=0)
    over[left] = sums.max(axis=0, initial=0.0) > _FULL
    return over


def _without_turns(begin: Floats, end: Floats) -> NDArray[np.intp]:
    """The columns in which traffic does not take turns. Most columns that take turns do so in the
    order of the first of them, so their times need not be sorted."""
    left = np.arange(begin.shape[1])
    while len(left):
        order = np.argsort(begin[:, 0])
        turns: Flags = np.all(end[order[:-1]] <= begin[order[1:]], axis=0)
        if not turns[0]:
            break
        left, begin, end = left[~turns], begin[:, ~turns], end[:, ~turns]
    return left


def _computations(writer: Writer) -> Iterator["_Computation"]:
    """Yield the computations with collectives inside, of all kinds of passes."""
    for kind, (stage, _) in enumerate(writer.grid.kinds):
        for number, played in enumerate(writer.estimate.maps[kind].played):
            if isinstance(played.operation, Compute):
                work = played.operation.work
                computation = _Computation(writer, kind, stage, number, work)
                if computation.links:
                    yield computation


class _Computation:
    """A computation of all passes of one kind, with the collectives inside it."""

    def __init__(self, writer: Writer, kind: int, stage: int, number: int, work: Work) -> None:
        self.writer, self.kind, self.stage, self.number = writer, kind, stage, number
        self.work = work
        self.nodes = np.flatnonzero(writer.grid.kind == kind)
        machine = writer.estimate.machine
        self.costs, self.desk = machine.costs[stage], machine.desks[stage]
        self.links = {link for call in work.collectives() for link, _ in self._shares(call)}

    def _shares(self, call: Collective) -> Iterator[tuple[int, float]]:
        return shares(self.desk.traffic(call, self.stage), self.desk.desk.links)

    def uses(self, link: int, busy: "_Spans | None") -> list[_Use]:
        """When the collectives inside use a link. If `busy` spans are given, only passes whose
        computation overlaps a span count."""
        start, host, end = self._moments
        if busy is not None:
            chosen = busy.overlap(start[:, 0], end[:, 0])
            start, host = start[chosen], host[chosen]
        return list(self._played(link, start, host)) if len(start) else []

    @cached_property
    def _moments(self) -> list[Floats]:
        """When device and host are ready and when the computation ends, in each pass."""
        return [
            self.writer.at(self.writer.lags(self.kind, self.number, moment), self.nodes)
            for moment in _MOMENTS
        ]

    def _played(self, link: int, ready: Floats, host: Floats) -> Iterator[_Use]:
        for item in self.work.flat():
            come = np.maximum(ready, host)
            for call in (item,) if isinstance(item, Collective) else item.beside:
                traffic = self.desk.traffic(call, self.stage)
                for loaded, share in self._shares(call):
                    if loaded == link:
                        begin = come + traffic.latency
                        yield _Use(np.array([share]), begin, begin + traffic.seconds)
            device, launches, lead, wait = self.costs.of(item).duration
            ready, host = (
                np.maximum(ready + device, host + lead),
                np.maximum(ready + wait, host + launches),
            )
