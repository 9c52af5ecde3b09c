"""A dragonfly: cables join every two routers of a group, and one cable joins every two groups.

Kim, Dally, Scott and Abts 2008, "Technology-driven, highly-scalable dragonfly topology".
"""

from typing import Literal

from sim.config.dataclass import dataclass
from sim.config.units import BytesPerSecond, Seconds
from sim.hardware.cluster.cabled import CabledNetwork
from sim.hardware.cluster.network import Link
from sim.hardware.cluster.pods import SwitchedNetwork


@dataclass(frozen=True, kw_only=True)
class Dragonfly(SwitchedNetwork, CabledNetwork):
    """`groups` groups of `routers` routers, with `nodes_per_router` nodes for each router.

    The NICs of a node lead to one router, or in turn to `routers_per_node` neighbouring routers,
    which then share their nodes. Cables within a group carry `local_bandwidth`, cables between
    groups `global_bandwidth` (default: a NIC's). Each cable adds `hop_latency`.
    """

    shape: Literal["dragonfly"] = "dragonfly"
    groups: int
    routers: int
    nodes_per_router: int
    routers_per_node: int = 1
    local_bandwidth: BytesPerSecond | None = None
    global_bandwidth: BytesPerSecond | None = None
    hop_latency: Seconds = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.routers % self.routers_per_node:
            each = f"routers_per_node = {self.routers_per_node}"
            raise ValueError(f"{each} does not divide routers = {self.routers}")

    @property
    def vertices(self) -> int:
        return self.groups * self.routers

    @property
    def largest(self) -> int:
        return self.vertices * self.nodes_per_router

    @property
    def details(self) -> tuple[str, ...]:
        groups = f"{self.groups} groups of {self.routers} routers"
        shared = f", NICs on {self.routers_per_node} routers" if self.routers_per_node > 1 else ""
        return groups, f"{self.nodes_per_router} nodes a router{shared}"

    def vertex_of(self, node: int, nic: int = 0) -> int:
        shared = self.routers_per_node
        return node // (self.nodes_per_router * shared) * shared + nic % shared

    def gateway(self, group: int, towards: int) -> int:
        """The router of `group` that holds the cable to group `towards`.

        Cable k of a group leads to the k+1-th group after it (the relative arrangement, Camarero
        et al. 2014, section 3); the cables are dealt to the group's routers evenly and in order.
        """
        cable = (towards - group - 1) % self.groups
        cables_per_router = -(-(self.groups - 1) // self.routers)
        return group * self.routers + cable // cables_per_router

    def path(self, source: int, target: int) -> tuple[int, ...]:
        """Minimal routing, at most 3 hops: to the gateway, across, to the target (Kim et al. 2008,
        section 4.1).

        >>> dragonfly = Dragonfly(kind="infiniband", bandwidth=25e9, latency=1e-6, nics=1,
        ...                       groups=3, routers=2, nodes_per_router=1)
        >>> dragonfly.path(0, 5)
        (0, 1, 4, 5)
        """
        here, there = source // self.routers, target // self.routers
        stops: tuple[int, ...] = (source, target)
        if here != there:
            stops = (source, self.gateway(here, there), self.gateway(there, here), target)
        return tuple(dict.fromkeys(stops))

    def neighbours(self, vertex: int) -> tuple[int, ...]:
        """The other routers of the group, then the routers at the far end of its own cables."""
        group = vertex // self.routers
        peers = range(group * self.routers, (group + 1) * self.routers)
        local = [peer for peer in peers if peer != vertex]
        elsewhere = [(group + step) % self.groups for step in range(1, self.groups)]
        far = [
            self.gateway(there, group)
            for there in elsewhere
            if self.gateway(group, there) == vertex
        ]
        return tuple(local + far)

    def cable_bandwidth(self, a: int, b: int) -> float:
        local = a // self.routers == b // self.routers
        return (self.local_bandwidth if local else self.global_bandwidth) or self.bandwidth

    def latency_of(self, link: Link) -> float:
        return self.hop_latency if link[0] == "edge" else super().latency_of(link)
