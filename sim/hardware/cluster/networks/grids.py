"""Cables from node to node in a regular pattern: a full mesh, a ring, a torus."""

from math import prod
from typing import Literal

from sim.config.dataclass import dataclass
from sim.hardware.cluster import grid
from sim.hardware.cluster.cabled import NodeCables

_MOST = 65_536  # nodes, each with a cable to every other


@dataclass(frozen=True, kw_only=True)
class FullMesh(NodeCables):
    """`size` nodes, with a cable between every two of them."""

    shape: Literal["full-mesh"] = "full-mesh"
    size: int

    def __post_init__(self) -> None:
        if self.size > _MOST:
            raise ValueError(f"size = {self.size:,}, but a mesh has at most {_MOST:,} nodes")

    @property
    def vertices(self) -> int:
        return self.size

    def neighbours(self, vertex: int) -> tuple[int, ...]:
        return tuple(peer for peer in range(self.size) if peer != vertex)

    def count(self, a: int, b: int) -> int:
        return int(a != b and max(a, b) < self.size)

    def path(self, source: int, target: int) -> tuple[int, ...]:
        return tuple(dict.fromkeys((source, target)))


@dataclass(frozen=True, kw_only=True)
class Ring(NodeCables):
    """`size` nodes, each cabled to the nodes before and after it."""

    shape: Literal["ring"] = "ring"
    size: int

    @property
    def vertices(self) -> int:
        return self.size

    def neighbours(self, vertex: int) -> tuple[int, ...]:
        return grid.neighbours(vertex, (self.size,))

    def path(self, source: int, target: int) -> tuple[int, ...]:
        return grid.path(source, target, (self.size,))


@dataclass(frozen=True, kw_only=True)
class Torus(NodeCables):
    """Nodes cabled to their neighbours in a grid of sizes `dims`, first dimension fastest."""

    shape: Literal["torus"] = "torus"
    dims: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.dims or min(self.dims) < 1:
            raise ValueError(f"dims = {list(self.dims)} must be positive; write [4, 4]")

    @property
    def vertices(self) -> int:
        return prod(self.dims)

    @property
    def title(self) -> str:
        return f"{self.shape} {' x '.join(map(str, self.dims))}"

    def neighbours(self, vertex: int) -> tuple[int, ...]:
        return grid.neighbours(vertex, self.dims)

    def path(self, source: int, target: int) -> tuple[int, ...]:
        return grid.path(source, target, self.dims)
