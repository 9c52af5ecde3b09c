"""Links that are slow by a law: every so often another factor, drawn from named generators."""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

from sim.engine.processes import Process, World
from sim.hardware.cluster.link import Link
from sim.sharing.plan import StragglerCause
from sim.variability.generators import generator

_BLOCK = 4096  # factors drawn at once; a longer run begins again

Floats = NDArray[np.float64]


class Sky:
    """The links of one cause and their factors [intervals, links]; both ways of a link have one.

    No link is ever faster than its own rate: a factor below 1 counts as 1.

    Raises `InputError` for a link that is not there.
    """

    def __init__(self, slow: StragglerCause, world: World, *, seed: int, number: int) -> None:
        self.every, self.number, self._world = slow.interval, number, world
        self._links: list[tuple[Link, ...]] = [world.ways.links_named(name) for name in slow.links]
        drawn = slow.law.draw(generator(seed, "links", number), _BLOCK, len(self._links))
        self.factors: Floats = np.maximum(drawn, 1.0)

    def turn(self, interval: int) -> None:
        """From now on the factors of this interval."""
        factors = self.factors[interval % _BLOCK]
        for links, factor in zip(self._links, factors, strict=True):
            for link in links:
                self._world.slow_link(link, float(factor), self.number)


def weather(slow: Sequence[StragglerCause], world: World, *, seed: int) -> Process:
    """Change the links of all causes at the ends of their intervals, while anything else happens.

    One process for all of them, so that none goes on for the others' sake. Raises `InputError` for
    a link that is not there.
    """
    skies = [Sky(one, world, seed=seed, number=n) for n, one in enumerate(slow) if one.links]
    return _changing(skies, world)


def _changing(skies: Sequence[Sky], world: World) -> Process:
    turns = [(0.0, place, 0) for place in range(len(skies))]
    heapify(turns)
    while turns:
        at, place, interval = heappop(turns)
        if at > world.now:
            yield world.sleep(at - world.now)
            if world.is_still:
                return
        skies[place].turn(interval)
        heappush(turns, ((interval + 1) * skies[place].every, place, interval + 1))
