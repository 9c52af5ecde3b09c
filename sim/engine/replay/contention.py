"""Whether transfers of a program that was played without a clock would have slowed each other.

Alone, traffic moves at the rate of its narrowest link and takes a share of every other one. As long
as the shares on no link add up to more than one at any time, all of it moves as if alone, and what
was played is exact. Otherwise max-min fairness slows some, and only the clock knows which.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sim.engine.folded import LinkClass, Traffic
from sim.engine.replay.pass_map import PlayedOperation
from sim.engine.replay.writing import Writer
from sim.engine.tracks import Floats
from sim.program.operations import Collective, Compute, Work

_ROUNDING = 1e-9
_FULL = 1.0 + 1e-6


@dataclass(frozen=True, slots=True)
class _Use:
    """Traffic of one stream on one link: a share of it, from when to when."""

    share: float
    begin: Floats
    end: Floats


def contends(writer: Writer) -> bool:
    """Whether some link was asked for more than it has."""
    outside = _outside(writer)
    if any(_overfull(uses) for uses in outside.values()):
        return True
    passes_end = writer.passes_end
    loading: dict[int, list[int]] = defaultdict(list)
    for stage in range(len(writer.estimate.machine.desks)):
        for link in _links_inside(writer, stage):
            loading[link].append(stage)
    shared = {}
    for link, stages in loading.items():
        end = max(passes_end[stage] for stage in stages)
        beside = [use for use in outside.get(link, ()) if (use.begin < end).any()]
        if beside or len(stages) > 1:
            shared[link] = beside, stages
    if not shared:
        return False
    computations = list(_computations(writer))
    for link, (beside, stages) in shared.items():
        alone = len(stages) == 1
        inside = (use for computation in computations if link in computation.links
                  for use in computation.uses(link, beside if alone else None))  # fmt: skip
        if _overfull([*beside, *inside]):
            return True
    return False


def _links_inside(writer: Writer, stage: int) -> set[int]:
    """The links that collectives inside a stage's computations load."""
    desk = writer.estimate.machine.desks[stage]
    calls = writer.estimate.program.stages[stage].calls_inside
    links = desk.desk.links
    return {link for call in calls for link, _ in shares(desk.traffic(call, stage), links)}


def _outside(writer: Writer) -> dict[int, list[_Use]]:
    """The traffic outside of computations, by link."""
    links = writer.estimate.machine.desks[0].desk.links
    uses: dict[int, list[_Use]] = {}
    desks = writer.estimate.machine.desks
    collectives = (
        (desks[stage].traffic(call, stage), begun) for stage, call, begun in writer.collectives()
    )
    for traffic, begun in (*writer.messages(), *collectives):
        begin = begun + traffic.latency
        for link, share in shares(traffic, links):
            uses.setdefault(link, []).append(_Use(share, begin, begin + traffic.seconds))
    return uses


def shares(traffic: Traffic, links: Sequence[LinkClass]) -> Iterator[tuple[int, float]]:
    """Of each link that traffic loads, the share that it takes alone."""
    if traffic.seconds > 0.0:
        rate = traffic.size / traffic.seconds
        for link, load in traffic.loads:
            yield link, rate * load / links[link].capacity


def _overfull(uses: Sequence[_Use]) -> bool:
    """Whether streams that share a link ever ask for more than all of it."""
    if sum(use.share for use in uses) <= _FULL:
        return False
    share = np.concatenate([np.full(len(use.begin), use.share) for use in uses])
    begin = np.concatenate([use.begin for use in uses])
    end = np.concatenate([use.end for use in uses])
    # Traffic that ends as other traffic begins leaves the link to it.
    close = _ROUNDING * float(end.max(initial=0.0))
    times, changes = np.concatenate((begin, end - close)), np.concatenate((share, -share))
    order = np.lexsort((changes, times))
    return bool(np.cumsum(changes[order]).max(initial=0.0) > _FULL)


def _computations(writer: Writer) -> Iterator["_Computation"]:
    """The computations of all kinds of passes that have collectives inside."""
    for kind, (stage, _) in enumerate(writer.grid.kinds):
        for played in writer.estimate.maps[kind].played:
            if isinstance(played.operation, Compute):
                computation = _Computation(writer, kind, stage, played, played.operation.work)
                if computation.links:
                    yield computation


class _Computation:
    """A computation that passes of one kind have in common, and the collectives inside it."""

    def __init__(
        self, writer: Writer, kind: int, stage: int, played: PlayedOperation, work: Work
    ) -> None:
        self.writer, self.stage, self.played, self.work = writer, stage, played, work
        self.nodes = np.flatnonzero(writer.grid.kind == kind)
        self.costs, self.desk = (
            writer.estimate.machine.costs[stage],
            writer.estimate.machine.desks[stage],
        )
        self.links = {link for call in work.collectives() for link, _ in self._shares(call)}

    def _shares(self, call: Collective) -> Iterator[tuple[int, float]]:
        return shares(self.desk.traffic(call, self.stage), self.desk.desk.links)

    def uses(self, link: int, beside: Sequence[_Use] | None) -> list[_Use]:
        """When collectives inside use a link; where something is `beside`, of those passes only
        that it overlaps."""
        start = self.writer.at(self.played.start, self.nodes)
        host = self.writer.at(self.played.host, self.nodes)
        if beside is not None:
            end = self.writer.at(self.played.end, self.nodes)
            chosen = np.zeros(len(start), dtype=bool)
            for use in beside:
                chosen |= _overlap(start, end, use.begin, use.end)
            start, host = start[chosen], host[chosen]
        return list(self._played(link, start, host)) if len(start) else []

    def _played(self, link: int, ready: Floats, host: Floats) -> Iterator[_Use]:
        for item in self.work.flat():
            come = np.maximum(ready, host)
            for call in (item,) if isinstance(item, Collective) else item.beside:
                traffic = self.desk.traffic(call, self.stage)
                for loaded, share in self._shares(call):
                    if loaded == link:
                        begin = come + traffic.latency
                        yield _Use(share, begin, begin + traffic.seconds)
            device, launches, lead, wait = self.costs.of(item).duration
            ready, host = (
                np.maximum(ready + device, host + lead),
                np.maximum(ready + wait, host + launches),
            )


def _overlap(
    start: Floats, end: Floats, begin: Floats, stop: Floats
) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Which of some intervals overlap any of others, of which none overlap each other."""
    order = np.argsort(begin)
    begin, stop = begin[order], stop[order]
    first = np.searchsorted(stop, start, side="right")
    inside = first < len(begin)
    overlaps = np.zeros(len(start), dtype=bool)
    overlaps[inside] = begin[first[inside]] < end[inside]
    return overlaps
