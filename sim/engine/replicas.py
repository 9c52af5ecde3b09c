"""Which ranks are simulated if many replicas are alike.

Replicas that fill whole nodes can be exchanged without any effect, unless a replica is slow or has
a slow link. Pods of equally many replicas can be exchanged, too. One block of replicas stands for
all exchangeable blocks, so the simulation does not grow with the number of replicas.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from math import gcd

import numpy as np
from numpy.typing import NDArray

from sim.config import limit
from sim.config.dataclass import dataclass
from sim.engine.machine import Machine
from sim.hardware.cluster.topology import Topology
from sim.parallel.mesh import Mesh, axis_of, dividing

Indices = NDArray[np.int64]
_OF_BLOCK, _HELD = 6e-7, 100.0  # s and bytes that the simulator needs for a block


@dataclass(frozen=True, slots=True, eq=False)
class Representatives:
    """The simulated ranks, lowest first, in arrays.

    Each rank stands for `count` ranks that differ along `axis`, the axis of replicas, in `pods`
    pods. `coordinates` has an array for each axis of the mesh.
    """

    mesh: Mapping[str, int]

    axis: str
    rank: Indices
    count: Indices
    pods: Indices
    coordinates: Mapping[str, Indices]

    def at(self, axis: str) -> Indices:
        """The coordinate of each rank along an axis; 0 if the mesh lacks the axis."""
        return self.coordinates.get(axis, np.zeros_like(self.rank))


@dataclass(frozen=True, slots=True)
class _Replica:
    """An index along the axis of replicas, which stands for `count` replicas in `pods` pods."""

    index: int
    count: int = 1
    pods: int = 1


def representatives(
    mesh: Mapping[str, int], machine: Machine, *, unfold: bool, stores: bool = False
) -> Representatives:
    """The ranks to simulate: all ranks with `unfold`, otherwise the ranks of one block of each kind
    of replicas. With `stores`, blocks that use different stores count as different kinds."""
    batch = [name for name in mesh if axis_of(name) in dividing("batch")]
    axis = max(batch, key=lambda name: mesh[name], default="dp")
    replicas = _replicas(axis, mesh, machine, unfold, stores)
    indices = {name: np.arange(size) for name, size in mesh.items() if name != axis}
    names = [*indices, axis] if axis in mesh else list(indices)
    values = [*indices.values(), *([np.arange(len(replicas))] if axis in mesh else [])]
    grid = dict(zip(names, (a.ravel() for a in np.meshgrid(*values, indexing="ij")), strict=True))
    size = len(next(iter(grid.values()))) if grid else 1
    chosen = grid.get(axis, np.zeros(size, dtype=np.int64))
    index, count, pods = np.array([(r.index, r.count, r.pods) for r in replicas]).T
    if axis in mesh:
        grid[axis] = index[chosen]
    strides, rank = Mesh(axes=mesh), np.zeros(size, dtype=np.int64)
    for name, at in grid.items():
        rank += at * strides.stride(name)
    order = np.argsort(rank)
    return Representatives(
        mesh=mesh,
        axis=axis,
        rank=rank[order],
        count=count[chosen][order],
        pods=pods[chosen][order],
        coordinates={name: at[order] for name, at in grid.items()},
    )


def _replicas(
    axis: str, mesh: Mapping[str, int], machine: Machine, unfold: bool, used: bool
) -> list[_Replica]:
    size = mesh.get(axis, 1)
    width = None if unfold else _block_width(axis, mesh, machine.topology)
    if width is None:
        return [_Replica(index) for index in range(size)]
    blocks = size // width
    limit.refuse_long("gpus", f"{blocks:,} nodes of replicas", blocks * _OF_BLOCK)
    limit.refuse_large("gpus", f"{blocks:,} nodes of replicas", blocks * _HELD)
    topology = machine.topology
    where = _places(axis, mesh, topology, width, topology.pod_of, topology.pods > 1)
    kinds = _kinds(where, _odd_blocks(axis, mesh, machine, width), machine)
    storage, alike = topology.storage, defaultdict[object, list[int]](list)
    several = used and storage is not None and storage.shared
    stores = _places(axis, mesh, topology, width, storage.place_of if storage else int, several)
    for block, kind in enumerate(zip(kinds, stores, where, strict=True)):
        alike[kind if several else kind[0]].append(block)  # stores may span pods
    return [
        _Replica(blocks[0] * width + index, len(blocks), len({where[block] for block in blocks}))
        for blocks in alike.values()
        for index in range(width)
    ]


def _kinds(where: list[tuple[int, ...]], odd: set[int], machine: Machine) -> list[object]:
    """A kind for each block, equal for blocks that can be exchanged.

    Each odd block (with a slow rank or an odd node) is a kind of its own. Blocks that span several
    pods are alike if they span the same pods. Blocks inside a pod are alike across pods that hold
    equally many blocks, unless a pod or a block in it is odd.
    """
    inside = {block: pods[0] for block, pods in enumerate(where) if len(set(pods)) == 1}
    held = Counter(inside.values())
    special = {pod for block in odd for pod in where[block]} | machine.odd_pods
    return [
        ("odd", block)
        if block in odd
        else ("pods of", held[inside[block]])
        if block in inside and inside[block] not in special
        else ("pods", pods)
        for block, pods in enumerate(where)
    ]


def _block_width(axis: str, mesh: Mapping[str, int], topology: Topology) -> int | None:
    """The smallest number of neighbouring replicas that share no node with others, or None."""
    if axis not in mesh or not topology.hierarchical:
        return None
    grid, node, size = Mesh(axes=mesh), topology.gpus_per_node, mesh[axis]
    stride = grid.stride(axis)
    width = node // gcd(node, stride)
    aligned = (stride * size) % node == 0 or stride * size == grid.size
    return width if size % width == 0 and aligned else None


def _odd_blocks(axis: str, mesh: Mapping[str, int], machine: Machine, width: int) -> set[int]:
    grid, node = Mesh(axes=mesh), machine.topology.gpus_per_node
    ranks = set(machine.slowdown)
    for number in machine.odd_nodes:
        ranks.update(range(number * node, min((number + 1) * node, grid.size)))
    return {grid.coordinate(rank, axis) // width for rank in ranks}


def _places(
    axis: str,
    mesh: Mapping[str, int],
    topology: Topology,
    width: int,
    place_of: Callable[[int], int],
    several: bool,
) -> list[tuple[int, ...]]:
    """The places (pods or stores) of each block's nodes, in order. They are left out unless there
    are `several` places."""
    blocks = mesh[axis] // width
    if not several:
        return [()] * blocks
    grid, node = Mesh(axes=mesh), topology.gpus_per_node
    stride = grid.stride(axis)
    place = np.array([place_of(number) for number in range(topology.nodes)])
    starts = np.arange(0, grid.size, stride * mesh[axis])
    inside = starts[:, None] + np.arange(0, width * stride, node)
    gpus = inside.ravel() + np.arange(blocks)[:, None] * width * stride
    return [tuple(places) for places in place[gpus // node].tolist()]
