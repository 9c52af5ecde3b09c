"""Links that are slow by a law: every so often another factor, drawn from named generators."""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

from sim.engine.live_cluster import LiveCluster, Process
from sim.hardware.cluster.network import Link
from sim.jobs.sharing.tables import StragglerCause
from sim.variability.laws import generator

_BLOCK = 4096  # factors drawn at once; a longer run begins again

Floats = NDArray[np.float64]


class SlowLinks:
    """The links of one cause and their factors [intervals, links], the same for both directions.

    No link is ever faster than its own rate: a factor below 1 counts as 1.

    Raises `InputError` for a link that is not there.
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
        """From now on the factors of this interval."""
        factors = self.factors[interval % _BLOCK]
        for links, factor in zip(self._links, factors, strict=True):
            for link in links:
                self._cluster.slow_link(link, float(factor), self.number)


def vary_links(causes: Sequence[StragglerCause], cluster: LiveCluster, *, seed: int) -> Process:
    """Change the links of all causes at the ends of their intervals, while anything else happens.

    One process for all of them, so that none keeps the run alive for the others. Raises
    `InputError` for a link that is not there.
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
