"""Which ranks to look at when many replicas are alike.

Replicas that fill whole nodes can be exchanged without changing anything, unless one is slow,
hangs on a slow link or lies in another pod. One block of replicas stands for all exchangeable
ones, so the work below never depends on how many there are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import gcd, prod

from sim.engine.machine import Machine
from sim.hardware.topology import Topology
from sim.parallel.mesh import Mesh

AXIS = "dp"


@dataclass(frozen=True, slots=True)
class Place:
    """A rank, its coordinates along the mesh axes, and how many ranks it stands for."""

    rank: int
    coordinates: Mapping[str, int]
    count: int


def places(mesh: Mapping[str, int], machine: Machine, *, unfold: bool) -> list[Place]:
    """The ranks to consider, lowest first: all of them when `unfold`, else one of each block."""
    copies = _replicas(mesh, machine, unfold)
    choices = [copies if axis == AXIS else [(i, 1) for i in range(mesh[axis])] for axis in mesh]
    grid, found = Mesh(axes=mesh), []
    for choice in product(*choices):
        coordinates = {axis: index for axis, (index, _) in zip(mesh, choice, strict=True)}
        count = prod(count for _, count in choice)
        found.append(Place(grid.rank(coordinates), coordinates, count))
    return sorted(found, key=lambda place: place.rank)


def _replicas(mesh: Mapping[str, int], machine: Machine, unfold: bool) -> list[tuple[int, int]]:
    """(index along the axis, how many replicas it stands for)."""
    size = mesh.get(AXIS, 1)
    width = None if unfold else _block_width(mesh, machine.topology)
    if width is None:
        return [(index, 1) for index in range(size)]
    alike: dict[object, list[int]] = {}
    odd = _odd_blocks(mesh, machine, width)
    for block in range(size // width):
        where = _pods(mesh, machine.topology, width, block)
        alike.setdefault((where, block if block in odd else None), []).append(block)
    return [
        (blocks[0] * width + index, len(blocks))
        for blocks in alike.values()
        for index in range(width)
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
