"""How slow every worker is in each of its steps, drawn beforehand from named generators."""

from collections.abc import Mapping, Sequence

import numpy as np

from sim.engine.live_cluster import Endpoint
from sim.hardware.cluster.topology import Topology
from sim.jobs.sharing.tables import StragglerCause
from sim.variability.laws import generator

_BLOCK = 4096  # steps drawn at once at most; a longer run begins again


class WorkerSlowdowns:
    """The factors of all steps, for each rank that is ever slow, and every rank's `mean` factor.

    What a rank draws depends on the seed, the cause and the rank alone, so that neither another
    cause nor the order of events reshuffles it. Of `redundancy` computations of a step the first
    answer counts.
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
        self.mean = [_slowest(endpoint, constant) for endpoint in endpoints]
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


def _slowest(endpoint: Endpoint, factors: Mapping[int, float]) -> float:
    """A worker of several GPUs is as slow as its slowest."""
    return max(factors.get(gpu, 1.0) for gpu in endpoint.gpus) if factors else 1.0


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
