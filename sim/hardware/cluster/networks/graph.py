"""Any graph of nodes: the file lists its cables."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from sim.hardware.cluster import paths
from sim.hardware.cluster.cabled import CabledNetwork


@dataclass(frozen=True, kw_only=True)
class CableGraph(CabledNetwork):
    """`size` nodes and `cables` between two each; a message takes a shortest path."""

    shape: Literal["graph"] = "graph"
    size: int
    cables: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        self._positive("size")
        if any(a == b or min(a, b) < 0 or max(a, b) >= self.size for a, b in self.cables):
            raise ValueError(f"cables join two different nodes below size = {self.size}")

    @property
    def vertices(self) -> int:
        return self.size

    def check(self, nodes: int, slots: int) -> None:
        super().check(nodes, slots)
        if lost := set(range(self.size)) - paths.reachable(0, self.neighbours):
            raise ValueError(
                f"no path leads from node 0 to node {min(lost)} (gpu {min(lost) * slots}); "
                "add a cable to it"
            )

    @cached_property
    def _neighbours(self) -> dict[int, set[int]]:
        neighbours: dict[int, set[int]] = {}
        for a, b in self.cables:
            neighbours.setdefault(a, set()).add(b)
            neighbours.setdefault(b, set()).add(a)
        return neighbours

    def neighbours(self, vertex: int) -> tuple[int, ...]:
        return tuple(sorted(self._neighbours.get(vertex, ())))

    def path(self, source: int, target: int) -> tuple[int, ...]:
        """The way back is the same reversed."""
        if source > target:
            return tuple(reversed(self.path(target, source)))
        return paths.shortest_path(source, target, self.neighbours)
