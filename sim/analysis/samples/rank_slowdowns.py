"""How slow each rank is in each step: causes are drawn; a group is as slow as its slowest rank."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from math import prod

import numpy as np
from numpy.typing import NDArray

from sim.config.dataclass import dataclass
from sim.hardware.cluster.topology import Topology
from sim.parallel.mesh import Mesh, axis_of, dividing
from sim.variability.laws import Jitter, JitterCause, generator

Floats = NDArray[np.float64]

_AT_ONCE = 2_000_000  # factors of a block, so memory does not grow with the number of steps
_WHO = 1  # the number of the generator that says which ranks a cause strikes


@dataclass(frozen=True, slots=True)
class RankPlacement:
    """The places of ranks: rank numbers [replicas, stages, members], and the node of each rank."""

    ranks: NDArray[np.intp]
    node: NDArray[np.intp]

    @classmethod
    def of(cls, mesh: Mapping[str, int], topology: Topology) -> "RankPlacement":
        axes = list(mesh)  # fastest varying first
        numbers = np.arange(Mesh(axes=mesh).size, dtype=np.intp)
        table = numbers.reshape([mesh[axis] for axis in reversed(axes)])
        batch = [axis for axis in reversed(axes) if axis_of(axis) in dividing("batch")]
        first = [*batch, *({"pp"} & {*axes})]
        places = [len(axes) - 1 - axes.index(axis) for axis in first]
        table = np.moveaxis(table, places, range(len(places)))
        shape = prod(mesh[axis] for axis in batch), mesh.get("pp", 1), -1
        return cls(table.reshape(shape), numbers // topology.gpus_per_node)

    @property
    def nodes(self) -> int:
        return int(self.node[-1]) + 1

    def unit(self, each: str) -> NDArray[np.intp]:
        """Return the number of each rank's node, stage or replica, or the rank's own number."""
        if each == "node":
            return self.node
        units = np.arange(len(self.node), dtype=np.intp)
        for number in range(self.ranks.shape[0] if each == "replica" else 0):
            units[self.ranks[number].ravel()] = number
        for number in range(self.ranks.shape[1] if each == "stage" else 0):
            units[self.ranks[:, number].ravel()] = number
        return units

    def groups(self, ranks: Floats) -> Floats:
        """Reduce [steps, ranks] to [steps, replicas, stages]. A tensor-parallel group waits for its
        slowest member at every collective."""
        slowest: Floats = ranks[:, self.ranks[:, :, 0]]
        for member in range(1, self.ranks.shape[2]):
            np.maximum(slowest, ranks[:, self.ranks[:, :, member]], out=slowest)
        return slowest


@dataclass(frozen=True, slots=True)
class RankSlowdowns:
    """The factor by which each rank's kernels take longer [steps, ranks], over all causes.

    `by_cause` has the factors of each cause: [steps, ranks], or [1, ranks] for a lasting cause.
    """

    total: Floats
    by_cause: Mapping[str, Floats]

    def without(self, cause: str) -> Floats:
        """Return the product of all causes but this one."""
        others = [part for name, part in self.by_cause.items() if name != cause]
        return _product(others, *self.total.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """The slowdowns of `steps` steps, drawn block by block. Each iteration yields the same draws.

    `slowdown` has the factors of ranks that are slow all the time.
    """

    jitter: Jitter
    placement: RankPlacement
    steps: int
    slowdown: Mapping[int, float]

    def blocks(self) -> Iterator[RankSlowdowns]:
        """Yield all steps in blocks that fit into memory."""
        most = max(1, _AT_ONCE // len(self.placement.node))
        whole, rest = divmod(self.steps, most)
        return self._drawn([*repeat(most, whole), *([rest] if rest else [])])

    def first(self, steps: int) -> RankSlowdowns:
        """Return the slowdowns of the first steps only."""
        return next(self._drawn([steps]))

    def _drawn(self, sizes: Sequence[int]) -> Iterator[RankSlowdowns]:
        causes = {
            cause.name: _drawn(cause, self.placement, sizes, self.jitter.seed)
            for cause in self.jitter.causes
        }
        if self.slowdown:
            constant = np.ones((1, len(self.placement.node)))
            constant[0, list(self.slowdown)] = list(self.slowdown.values())
            causes["stragglers named in the scenario"] = repeat(constant)
        for steps, *parts in zip(sizes, *causes.values(), strict=False):  # some causes are endless
            total = _product(parts, steps, len(self.placement.node))
            yield RankSlowdowns(total, dict(zip(causes, parts, strict=True)))


def _drawn(
    cause: JitterCause, placement: RankPlacement, sizes: Iterable[int], seed: int
) -> Iterator[Floats]:
    """Yield the factors of a cause, block by block; a lasting cause yields the same row each
    time."""
    rng, unit = generator(seed, cause.name), placement.unit(cause.each)
    count = int(unit.max()) + 1
    well = generator(seed, cause.name, _WHO).random(count) >= cause.share
    for factors in cause.law.blocks(rng, (1,) if cause.lasts == "job" else sizes, count):
        factors[:, well] = 1.0
        by_rank = factors if cause.each == "rank" else factors[:, unit]
        yield from repeat(by_rank) if cause.lasts == "job" else (by_rank,)


def _product(parts: list[Floats], steps: int, ranks: int) -> Floats:
    if len(parts) == 1 and parts[0].shape == (steps, ranks):
        return parts[0]
    product = np.ones((steps, ranks))
    for part in parts:
        product *= part
    return product
