"""Any graph of nodes: the file lists its cables."""

from functools import cached_property
from typing import Literal

from sim.config.dataclass import dataclass
from sim.hardware.cluster.cabled import NodeCables
from sim.hardware.cluster.route import adjacency, reachable, shortest_path


@dataclass(frozen=True, kw_only=True)
class CableGraph(NodeCables):
    """Vertices are `size` nodes, then `switches`. An entry of `cables` is [one end, other end,
    number of cables (default 1)]. A message takes a shortest path."""

    shape: Literal["graph"] = "graph"
    size: int
    switches: int = 0
    cables: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if any(not 2 <= len(cable) <= 3 or min(cable[2:], default=1) < 1 for cable in self.cables):
            raise ValueError("a cable is [node, node] or [node, node, number]")
        if any(a == b or min(a, b) < 0 or max(a, b) >= self.vertices for a, b, *_ in self.cables):
            below = f"size = {self.size}" + (" + switches" if self.switches else "")
            raise ValueError(f"cables join two different nodes below {below}")

    @property
    def vertices(self) -> int:
        return self.size + self.switches

    @property
    def largest(self) -> int:
        return self.size

    @property
    def details(self) -> tuple[str, ...]:
        return (f"{self.switches} switches",) if self.switches else ()

    def check(self, nodes: int, slots: int) -> None:
        super().check(nodes, slots)
        reached = reachable(0, self.neighbours)
        if len(reached) < self.vertices:
            lost = next(vertex for vertex in range(self.vertices) if vertex not in reached)
            raise ValueError(
                f"no path leads from node 0 to node {lost} (gpu {lost * slots}); add a cable to it"
            )

    @cached_property
    def _counts(self) -> dict[int, dict[int, int]]:
        return adjacency(self.cables)

    def count(self, a: int, b: int) -> int:
        return self._counts.get(a, {}).get(b, 0)

    def neighbours(self, vertex: int) -> tuple[int, ...]:
        return tuple(sorted(self._counts.get(vertex, ())))

    def path(self, source: int, target: int) -> tuple[int, ...]:
        """A shortest path; the way back is the same path reversed."""
        if source > target:
            return tuple(reversed(self.path(target, source)))
        return shortest_path(source, target, self.neighbours)
