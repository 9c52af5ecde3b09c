"""How slow every worker is in each of its steps, drawn beforehand from named generators."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sim.engine.processes import Place
from sim.hardware.cluster.topology import Topology
from sim.sharing.plan import StragglerCause
from sim.variability.generators import generator

_BLOCK = 4096  # steps drawn at once at most; a longer run begins again


class Pace:
    """Factors [copies, steps] for each rank that is ever slow.

    What a rank draws depends on the seed, the cause and the rank alone, so that neither another
    cause nor the order of events reshuffles it.
    """

    def __init__(
        self,
        slow: Sequence[StragglerCause],
        constant: Mapping[int, float],
        places: Sequence[Place],
        topology: Topology,
        *,
        steps: int,
        copies: int,
        seed: int,
    ) -> None:
        self._factors: dict[int, NDArray[np.float64]] = {}
        self.usual = [_constant(place, constant) for place in places]
        self.steps, self.copies = max(1, min(steps, _BLOCK)), copies
        for rank, factor in enumerate(self.usual):
            if factor != 1.0:
                self._times(rank, factor)
        for number, one in enumerate(slow):
            if one.links:
                continue
            for rank in _ranks(one, places, topology):
                rng = generator(seed, "stragglers", number, rank)
                self._times(rank, one.law.draw(rng, self.steps, copies).T)
                self.usual[rank] *= one.law.mean

    def __call__(self, rank: int, copy: int, step: int) -> float:
        factors = self._factors.get(rank)
        return 1.0 if factors is None else float(factors[copy, step % self.steps])

    @property
    def healthy(self) -> bool:
        return not self._factors

    def _times(self, rank: int, factors: float | NDArray[np.float64]) -> None:
        known = self._factors.get(rank)
        start = np.ones((self.copies, self.steps)) if known is None else known
        self._factors[rank] = start * factors


def steady(rank: int, copy: int, step: int) -> float:
    """Nobody is ever slow."""
    return 1.0


def _constant(place: Place, factors: Mapping[int, float]) -> float:
    """A worker of several GPUs is as slow as its slowest."""
    return max(factors.get(gpu, 1.0) for gpu in place.gpus) if factors else 1.0


def _ranks(one: StragglerCause, places: Sequence[Place], topology: Topology) -> list[int]:
    if one.ranks is None and one.nodes is None:
        return list(range(len(places)))
    nodes, ranks = one.nodes or (), one.ranks or ()
    return [
        rank
        for rank, place in enumerate(places)
        if rank in ranks or topology.node_of(place.first) in nodes
    ]
