"""A ring of nodes: a torus of one dimension."""

from dataclasses import dataclass
from typing import Literal

from sim.hardware.cluster import grid
from sim.hardware.cluster.cabled import NodeCables


@dataclass(frozen=True, kw_only=True)
class Ring(NodeCables):
    """`size` nodes, each cabled to the one before and the one after it."""

    shape: Literal["ring"] = "ring"
    size: int

    @property
    def vertices(self) -> int:
        return self.size

    def neighbours(self, vertex: int) -> tuple[int, ...]:
        return grid.neighbours(vertex, (self.size,))

    def path(self, source: int, target: int) -> tuple[int, ...]:
        return grid.path(source, target, (self.size,))
