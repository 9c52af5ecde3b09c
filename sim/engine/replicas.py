"""Which ranks to look at when many replicas are alike.

Replicas that fill whole nodes can be exchanged without changing anything, unless one is slow or
hangs on a slow link; and so can pods that hold equally many of them. One block of replicas stands
for all exchangeable ones, so the work below never depends on how many there are.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import gcd

from sim.engine.machine import Machine
from sim.hardware.cluster.topology import Topology
from sim.parallel.mesh import Mesh

AXIS = "dp"


@dataclass(frozen=True, slots=True)
class Place:
    """A rank, where it is on the mesh, how many ranks it stands for, and in how many pods."""

    rank: int
    coordinates: Mapping[str, int]
    count: int
    pods: int = 1


@dataclass(frozen=True, slots=True)
class _Replica:
    """An index along the axis; how many replicas it stands for, and in how many pods."""

    index: int
    count: int = 1
    pods: int = 1


def places(mesh: Mapping[str, int], machine: Machine, *, unfold: bool) -> list[Place]:
    """The ranks to consider, lowest first: all of them when `unfold`, else one of each block."""
    others = [range(size) for axis, size in mesh.items() if axis != AXIS]
    grid, found = Mesh(axes=mesh), []
    for replica in _replicas(mesh, machine, unfold):
        for choice in product(*others):
            rest = iter(choice)
            coordinates = {axis: replica.index if axis == AXIS else next(rest) for axis in mesh}
            found.append(Place(grid.rank(coordinates), coordinates, replica.count, replica.pods))
    return sorted(found, key=lambda place: place.rank)


def _replicas(mesh: Mapping[str, int], machine: Machine, unfold: bool) -> list[_Replica]:
    size = mesh.get(AXIS, 1)
    width = None if unfold else _block_width(mesh, machine.topology)
    if width is None:
        return [_Replica(index) for index in range(size)]
    where = [_pods(mesh, machine.topology, width, block) for block in range(size // width)]
    alike: dict[object, list[int]] = {}
    for block, kind in enumerate(_kinds(where, _odd_blocks(mesh, machine, width), machine)):
        alike.setdefault(kind, []).append(block)
    return [
        _Replica(blocks[0] * width + index, len(blocks), len({where[block] for block in blocks}))
        for blocks in alike.values()
        for index in range(width)
    ]


def _kinds(where: list[tuple[int, ...]], odd: set[int], machine: Machine) -> list[object]:
    """Equal for blocks that can be exchanged.

    Odd blocks are by themselves; blocks that span pods must span the same ones; blocks inside one
    pod are as good as those of another pod that holds equally many, if nothing there is odd.
    """
    inside = {block: pods[0] for block, pods in enumerate(where) if len(set(pods)) == 1}
    held = Counter(inside.values())
    special = {pod for block in odd for pod in where[block]} | machine.slow_pods
    return [
        ("odd", block)
        if block in odd
        else ("pods of", held[inside[block]])
        if block in inside and inside[block] not in special
        else ("pods", pods)
        for block, pods in enumerate(where)
    ]


def _block_width(mesh: Mapping[str, int], topology: Topology) -> int | None:
    """The fewest neighbouring replicas that share no node with any other replica."""
    if AXIS not in mesh or not topology.hierarchical:
        return None
    grid, node, size = Mesh(axes=mesh), topology.gpus_per_node, mesh[AXIS]
    stride = grid.stride(AXIS)
    width = node // gcd(node, stride)
    aligned = (stride * size) % node == 0 or stride * size == grid.size
    return width if size % width == 0 and aligned else None


def _odd_blocks(mesh: Mapping[str, int], machine: Machine, width: int) -> set[int]:
    grid, node = Mesh(axes=mesh), machine.topology.gpus_per_node
    ranks = set(machine.slowdown)
    for number in machine.slow_nodes:
        ranks.update(range(number * node, min((number + 1) * node, grid.size)))
    return {grid.coordinate(rank, AXIS) // width for rank in ranks}


def _pods(mesh: Mapping[str, int], topology: Topology, width: int, block: int) -> tuple[int, ...]:
    """The pods of the block's nodes, in order; the same for all blocks where there is one pod."""
    if topology.pods == 1:
        return ()
    grid, node = Mesh(axes=mesh), topology.gpus_per_node
    stride = grid.stride(AXIS)
    starts = range(block * width * stride, grid.size, stride * mesh[AXIS])
    gpus = (gpu for start in starts for gpu in range(start, start + width * stride, node))
    return tuple(topology.pod_of(topology.node_of(gpu)) for gpu in gpus)
