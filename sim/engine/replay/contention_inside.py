"""Contention of collectives inside computations with other traffic, in a single program."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Literal

import numpy as np

from sim.config.dataclass import dataclass
from sim.engine.replay.link_uses import Flags, LinkUse, overfull, shares
from sim.engine.replay.writing import Writer
from sim.engine.tracks import Floats
from sim.program.operations import Collective, Compute, Work

_MOMENTS: tuple[Literal["start", "host", "end"], ...] = ("start", "host", "end")


@dataclass(frozen=True, slots=True)
class _Spans:
    """Spans of time in order, which do not overlap."""

    begin: Floats
    end: Floats

    @classmethod
    def covered(cls, uses: Sequence[LinkUse]) -> "_Spans":
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


def overfull_inside(writer: Writer, shared: Mapping[int, tuple[list[LinkUse], list[int]]]) -> bool:
    """Whether collectives inside computations and other traffic ask a shared link for more than its
    capacity. `writer` has a single column; `shared` has each link's other uses, and the stages
    whose computations load the link."""
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
        if overfull([*beside, *inside]).any():
            return True
    return False


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

    def uses(self, link: int, busy: "_Spans | None") -> list[LinkUse]:
        """When the collectives inside use a link. If `busy` spans are given, passes whose
        computation overlaps none of them are left out."""
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

    def _played(self, link: int, ready: Floats, host: Floats) -> Iterator[LinkUse]:
        for item in self.work.flat():
            come = np.maximum(ready, host)
            for call in (item,) if isinstance(item, Collective) else item.beside:
                traffic = self.desk.traffic(call, self.stage)
                for loaded, share in self._shares(call):
                    if loaded == link:
                        begin = come + traffic.latency
                        yield LinkUse(np.array([share]), begin, begin + traffic.seconds)
            device, launches, lead, wait = self.costs.of(item).duration
            ready, host = (
                np.maximum(ready + device, host + lead),
                np.maximum(ready + wait, host + launches),
            )
