"""Slowdown factors of workers and links, which are drawn from laws before the run."""

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush

import numpy as np

from sim.engine.live_cluster import Endpoint, LiveCluster, Process
from sim.hardware.cluster.network import Link
from sim.hardware.cluster.topology import Topology
from sim.jobs.sharing.tables import StragglerCause
from sim.variability.laws import Floats, generator

_BLOCK = 4096  # steps or intervals that have draws; a longer run repeats the draws


class SlowLinks:
    """The links that one cause slows, and their factors [intervals, links] for both directions.

    No link is ever faster than its own rate: a factor below 1 counts as 1.

    Raises `InputError` for a link that does not exist.
    """

    def __init__(
        self, cause: StragglerCause, cluster: LiveCluster, *, seed: int, number: int
    ) -> None:
        self.interval, self.number, self._cluster = cause.interval, number, cluster
        self._links: list[tuple[Link, ...]] = [
            cluster.routes.links_named(name) for name in cause.links
        ]
        drawn = cause.law.draw(generator(seed, "links", number), _BLOCK, len(self._links))
        self.factors: Floats = np.maximum(drawn, 1.0)

    def change(self, interval: int) -> None:
        """Apply the factors of an interval from now on."""
        factors = self.factors[interval % _BLOCK]
        for links, factor in zip(self._links, factors, strict=True):
            for link in links:
                self._cluster.slow_link(link, float(factor), self.number)


def vary_links(causes: Sequence[StragglerCause], cluster: LiveCluster, *, seed: int) -> Process:
    """Change the links of all causes at the ends of their intervals, while other events are due.

    A single process changes all links; with several, each would keep the run alive for the others.
    Raises `InputError` for a link that does not exist.
    """
    slow = [
        SlowLinks(cause, cluster, seed=seed, number=number)
        for number, cause in enumerate(causes)
        if cause.links
    ]
    return _vary(slow, cluster)


def _vary(slow: Sequence[SlowLinks], cluster: LiveCluster) -> Process:
    due = [(0.0, place, 0) for place in range(len(slow))]
    heapify(due)
    while due:
        moment, place, interval = heappop(due)
        if moment > cluster.now:
            yield cluster.sleep(moment - cluster.now)
            if cluster.is_still:
                return
        slow[place].change(interval)
        heappush(due, ((interval + 1) * slow[place].interval, place, interval + 1))


class WorkerSlowdowns:
    """The slowdown factors of all steps of each rank that is ever slow. `mean` has every rank's
    mean factor, `constant` the constant factors of GPUs. A worker is as slow as its slowest GPU.

    A rank's draws depend on the seed, the cause and the rank alone, so neither another cause nor
    the order of events changes them. A step is computed `redundancy` times; the fastest computation
    counts.
    """

    def __init__(
        self,
        causes: Sequence[StragglerCause],
        constant: Mapping[int, float],
        endpoints: Sequence[Endpoint],
        topology: Topology,
        *,
        steps: int,
        redundancy: int,
        seed: int,
    ) -> None:
        self.mean = [max(constant.get(gpu, 1.0) for gpu in own.gpus) for own in endpoints]
        self.steps = max(1, min(steps, _BLOCK))
        shape = (self.steps, redundancy)
        factors = {
            rank: np.full(shape, factor) for rank, factor in enumerate(self.mean) if factor != 1.0
        }
        for number, cause in enumerate(causes):
            for rank in _ranks(cause, endpoints, topology):
                drawn = cause.law.draw(generator(seed, "stragglers", number, rank), *shape)
                factors[rank] = factors[rank] * drawn if rank in factors else drawn
                self.mean[rank] *= cause.law.mean
        self._factors = {rank: several.min(axis=1) for rank, several in factors.items()}

    def factor(self, rank: int, step: int) -> float:
        """How many times as long as usual a step of a rank takes."""
        factors = self._factors.get(rank)
        return 1.0 if factors is None else float(factors[step % self.steps])


def _ranks(
    cause: StragglerCause, endpoints: Sequence[Endpoint], topology: Topology
) -> Sequence[int]:
    if cause.links:
        return ()
    if cause.ranks is None and cause.nodes is None:
        return range(len(endpoints))
    nodes, ranks = cause.nodes or (), cause.ranks or ()
    return [
        rank
        for rank, endpoint in enumerate(endpoints)
        if rank in ranks or topology.node_of(endpoint.first) in nodes
    ]
