"""A full mesh: a cable between every two nodes."""

from dataclasses import dataclass
from typing import Literal

from sim.hardware.cluster.cabled import NodeCables

_MOST = 65_536  # nodes, each with a cable to every other


@dataclass(frozen=True, kw_only=True)
class FullMesh(NodeCables):
    """`size` nodes, every two of them joined."""

    shape: Literal["full-mesh"] = "full-mesh"
    size: int

    def __post_init__(self) -> None:
        if self.size > _MOST:
            raise ValueError(f"size = {self.size:,} cables at a node; a mesh has at most {_MOST:,}")

    @property
    def vertices(self) -> int:
        return self.size

    def neighbours(self, vertex: int) -> tuple[int, ...]:
        return tuple(peer for peer in range(self.size) if peer != vertex)

    def count(self, a: int, b: int) -> int:
        return int(a != b and max(a, b) < self.size)

    def path(self, source: int, target: int) -> tuple[int, ...]:
        return tuple(dict.fromkeys((source, target)))
