"""What joins the nodes of a cluster: switches above NICs, or cables from node to node."""

from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Literal

from sim.config.units import BytesPerSecond, Seconds
from sim.hardware.cluster import graph

Shape = Literal[
    "switch", "fat-tree", "rail-optimised", "torus", "ring", "full-mesh", "dragonfly", "graph"
]
Kind = Literal["infiniband", "roce", "efa", "ethernet", "ici"]

# The keys that describe each shape: those it needs, and those it may have.
_NEEDS: dict[str, tuple[str, ...]] = {
    "switch": ("nics",),
    "fat-tree": ("nics",),
    "rail-optimised": ("nics",),
    "torus": ("dims",),
    "ring": ("size",),
    "full-mesh": ("size",),
    "dragonfly": ("nics", "groups", "routers", "nodes_per_router"),
    "graph": ("size", "cables"),
}
_PODS = ("nodes_per_pod", "oversubscription", "hop_latency", "nic_of_slot")
_MAY_HAVE: dict[str, tuple[str, ...]] = {
    "switch": ("nic_of_slot",),
    "fat-tree": _PODS,
    "rail-optimised": _PODS,
    "dragonfly": ("local_bandwidth", "global_bandwidth", "hop_latency", "nic_of_slot"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The network between nodes.

    `bandwidth` is that of one NIC (of one cable where nodes are cabled to each other) in each
    direction, `latency` from node to node through one switch (over one cable), `efficiency` the
    share of payload in what the wire carries.

    - `switch`: one non-blocking switch.
    - `fat-tree`: pods of `nodes_per_pod` whose uplinks carry 1/`oversubscription` of their NICs;
      with oversubscription 1 it never limits anything (Leiserson 1985).
    - `rail-optimised`: the same, NIC j of all nodes on rail switch j; a message to another rail
      first goes through NVSwitch to the device on that rail (NCCL's PXN).
    - `torus` of `dims`, `ring`, `full-mesh`, `graph` with `cables`: nodes are cabled directly.
    - `dragonfly`: `groups` of `routers` with `nodes_per_router` each (Kim et al. 2008).

    `hop_latency` is added by each cable between switches.
    """

    shape: Shape
    kind: Kind
    bandwidth: BytesPerSecond
    latency: Seconds
    efficiency: float = 1.0
    nics: int = 0
    nic_of_slot: tuple[int, ...] = ()
    nodes_per_pod: int = 0
    oversubscription: float = 1.0
    hop_latency: Seconds = 0.0
    dims: tuple[int, ...] = ()
    size: int = 0
    cables: tuple[tuple[int, int], ...] = ()
    groups: int = 0
    routers: int = 0
    nodes_per_router: int = 0
    local_bandwidth: BytesPerSecond | None = None
    global_bandwidth: BytesPerSecond | None = None

    def __post_init__(self) -> None:
        self._refuse_keys_of_other_shapes()
        if not 0 < self.efficiency <= 1:
            raise ValueError(
                f"efficiency = {self.efficiency} must be above 0 and at most 1; e.g. 0.98"
            )
        if not 1 <= self.oversubscription < float("inf"):
            raise ValueError(f"oversubscription = {self.oversubscription} must be at least 1")
        if self.oversubscription > 1 and not self.nodes_per_pod:
            raise ValueError("oversubscription needs pods; add nodes_per_pod = ...")
        if any(not 0 <= j < self.nics for j in self.nic_of_slot):
            raise ValueError(f"nic_of_slot names a NIC that is not among {self.nics}")
        if any(dim < 1 for dim in self.dims):
            raise ValueError(f"dims = {list(self.dims)} must be positive")
        if any(a == b or min(a, b) < 0 or max(a, b) >= self.size for a, b in self.cables):
            raise ValueError(f"cables join two different nodes below size = {self.size}")

    def _refuse_keys_of_other_shapes(self) -> None:
        needs = _NEEDS[self.shape]
        known = (*needs, *_MAY_HAVE.get(self.shape, ()))
        defaults = {name: f.default for name, f in type(self).__dataclass_fields__.items()}
        for key in ("efficiency", "shape", "kind", "bandwidth", "latency"):
            del defaults[key]
        for key, default in defaults.items():
            value = getattr(self, key)
            if key in needs and value == default:
                raise ValueError(f"a {self.shape} network needs {key}; add {key} = ...")
            if key not in known and value != default:
                raise ValueError(f"a {self.shape} network has no {key}; leave it out")
            if isinstance(value, int) and value < 0:
                raise ValueError(f"{key} = {value} must be positive")

    @property
    def has_pods(self) -> bool:
        """True where the uplinks of pods can limit anything."""
        return self.oversubscription > 1

    @property
    def cabled(self) -> bool:
        """True where routes lead over cables that are told apart, not just up and down."""
        return self.vertices > 0

    @property
    def vertices(self) -> int:
        """How many nodes or routers the cables join; 0 in trees."""
        if self.shape == "torus":
            return prod(self.dims)
        return self.groups * self.routers if self.shape == "dragonfly" else self.size

    @property
    def largest(self) -> int | None:
        """How many nodes can be joined; None where it does not say."""
        return self.vertices * max(self.nodes_per_router, 1) if self.cabled else None

    @property
    def pod_bandwidth(self) -> float:
        """B/s of one pod's uplinks together, each way."""
        return self.nodes_per_pod * self.nics * self.bandwidth / self.oversubscription

    def vertex_of(self, node: int) -> int:
        """The vertex that a node is, or the router that it hangs on."""
        return node // max(self.nodes_per_router, 1)

    def neighbours(self, vertex: int) -> tuple[int, ...]:
        """The vertices that a cable joins to this one."""
        if self.shape == "torus":
            return graph.torus_neighbours(vertex, self.dims)
        if self.shape == "ring":
            return graph.torus_neighbours(vertex, (self.size,))
        if self.shape == "full-mesh":
            return tuple(other for other in range(self.size) if other != vertex)
        if self.shape == "dragonfly":
            return graph.dragonfly_neighbours(vertex, self.groups, self.routers)
        return _adjacency(self.cables).get(vertex, ())

    def path(self, source: int, target: int) -> tuple[int, ...]:
        """The vertices on the way, both ends included: deterministic and minimal."""
        if self.shape == "torus":
            return graph.torus_path(source, target, self.dims)
        if self.shape == "ring":
            return graph.torus_path(source, target, (self.size,))
        if self.shape == "full-mesh":
            return (source, target) if source != target else (source,)
        if self.shape == "dragonfly":
            return graph.dragonfly_path(source, target, self.groups, self.routers)
        if source > target:
            return tuple(reversed(self.path(target, source)))
        return graph.shortest_path(source, target, self.neighbours)

    def cable_bandwidth(self, a: int, b: int) -> float:
        """One direction of the cable between two vertices."""
        local = self.routers and a // self.routers == b // self.routers
        own = self.local_bandwidth if local else self.global_bandwidth
        return own or self.bandwidth


@cache
def _adjacency(cables: tuple[tuple[int, int], ...]) -> dict[int, tuple[int, ...]]:
    found: dict[int, dict[int, None]] = {}
    for a, b in cables:
        found.setdefault(a, {})[b] = None
        found.setdefault(b, {})[a] = None
    return {vertex: tuple(sorted(others)) for vertex, others in found.items()}
