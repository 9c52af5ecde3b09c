"""A full mesh: a cable between every two nodes."""

from dataclasses import dataclass
from typing import Literal

from sim.hardware.cluster.cabled import NodeCables


@dataclass(frozen=True, kw_only=True)
class FullMesh(NodeCables):
    """`size` nodes, every two of them joined."""

    shape: Literal["full-mesh"] = "full-mesh"
    size: int

    @property
    def vertices(self) -> int:
        return self.size

    def neighbours(self, vertex: int) -> tuple[int, ...]:
        return tuple(peer for peer in range(self.size) if peer != vertex)

    def path(self, source: int, target: int) -> tuple[int, ...]:
        return tuple(dict.fromkeys((source, target)))
