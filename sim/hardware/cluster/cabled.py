"""Networks of cables from node to node, or from router to router."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sim.config.dataclass import dataclass
from sim.hardware.cluster.network import ClusterNetwork, Link, Route, path_links

if TYPE_CHECKING:
    from sim.hardware.cluster.bill import Bill


class CabledNetwork(ClusterNetwork, ABC):
    """Vertices (nodes, or routers with nodes) joined by cables, each of which is a link of its own.

    Routes are deterministic and minimal; regular patterns compute them from the vertices' numbers.
    """

    @property
    @abstractmethod
    def vertices(self) -> int:
        """How many nodes or routers the cables join."""

    @abstractmethod
    def neighbours(self, vertex: int) -> tuple[int, ...]:
        """The vertices that a cable joins to `vertex`."""

    @abstractmethod
    def path(self, source: int, target: int) -> tuple[int, ...]:
        """The vertices on the way from `source` to `target`, both ends included."""

    @property
    def cabled(self) -> bool:
        return True

    @property
    def largest(self) -> int:
        """How many nodes the network can join."""
        return self.vertices

    def check(self, nodes: int, slots: int) -> None:
        super().check(nodes, slots)
        if nodes > self.largest:
            raise ValueError(
                f"its {self.shape} has room for {self.largest} nodes, not {nodes}; "
                f"use at most {self.largest * slots} GPUs"
            )

    def vertex_of(self, node: int, nic: int = 0) -> int:
        """The vertex of a node: the node itself, or the router to which its NIC `nic` leads."""
        return node

    def cable_bandwidth(self, a: int, b: int) -> float:
        """B/s of the cables between two vertices, each way."""
        return self.bandwidth

    def route(
        self, source: int, target: int, nics: tuple[int, int] = (0, 0), path: int = 0
    ) -> Route:
        ends = self.vertex_of(source, nics[0]), self.vertex_of(target, nics[1])
        return path_links("edge", self.path(*ends))

    def bill(self, nodes: int) -> "Bill":
        from sim.hardware.cluster.bill import Bill

        ends = sum(self.count(a, b) for a in range(self.vertices) for b in self.neighbours(a))
        nics = nodes * self.nics
        return Bill(
            switches=(self.vertices,) if nics else (),
            links=nics or ends // 2,
            trunks=ends // 2 if nics else 0,
        )

    def count(self, a: int, b: int) -> int:
        """How many cables join two vertices."""
        return int(b in self.neighbours(a))

    def links(self, nodes: int) -> Iterator[Link]:
        yield from super().links(nodes)
        for a in range(self.vertices):
            yield from (("edge", a, b) for b in self.neighbours(a))

    def has_link(self, link: Link, nodes: int) -> bool:
        match link:
            case ("edge", a, b):
                return a < self.vertices and b in self.neighbours(a)
        return super().has_link(link, nodes)

    def link_names(self, nodes: int) -> Iterator[str]:
        yield from super().link_names(nodes)
        if self.vertices > 1:
            yield f"edge 0-{self.neighbours(0)[0]} and others"

    def bandwidth_of(self, link: Link) -> float:
        match link:
            case ("edge", a, b):
                return self.cable_bandwidth(a, b)
        return super().bandwidth_of(link)


@dataclass(frozen=True, kw_only=True)
class NodeCables(CabledNetwork, ABC):
    """Cables from node to node.

    With `spread`, collectives use as many rings as fit on the cables, each in both directions, as
    NCCL does within a node. Otherwise a single ring goes in the order of ranks, wherever the cables
    lead, as NCCL does between nodes.
    """

    spread: bool = False

    def mesh(self) -> tuple[tuple[int, ...], ...]:
        """The number of cables between every two nodes, as a matrix."""
        every = range(self.largest)
        return tuple(tuple(self.count(a, b) for b in every) for a in every)

    def cable_bandwidth(self, a: int, b: int) -> float:
        return self.bandwidth * self.count(a, b)
