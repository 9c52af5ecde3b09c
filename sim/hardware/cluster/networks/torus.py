"""A torus: a grid of nodes that wraps around in every dimension."""

from dataclasses import dataclass
from math import prod
from typing import Literal

from sim.hardware.cluster import grid
from sim.hardware.cluster.cabled import NodeCables


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
