"""What a collective needs to know of its group and network, and what it asks of them."""

from dataclasses import dataclass
from typing import Literal

Generation = Literal["volta", "ampere", "hopper", "blackwell", "cpu", "tpu"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How a group lies on the machines: `ranks` members over `nodes`, at most `per_node` in one.

    >>> Shape.of(64, 8)
    Shape(ranks=64, nodes=8, per_node=8)
    """

    ranks: int
    nodes: int = 1
    per_node: int = 0

    def __post_init__(self) -> None:
        if self.per_node == 0:
            object.__setattr__(self, "per_node", -(-self.ranks // self.nodes))
        if not 1 <= self.nodes <= self.ranks:
            raise ValueError(f"{self.ranks} ranks cannot lie on {self.nodes} nodes")
        if not self.ranks <= self.per_node * self.nodes:
            raise ValueError(f"{self.nodes} nodes of {self.per_node} do not hold {self.ranks}")

    @classmethod
    def of(cls, ranks: int, per_node: int) -> "Shape":
        """The shape of `ranks` members that fill nodes of `per_node` one after the other."""
        per_node = min(ranks, per_node)
        return cls(ranks=ranks, nodes=-(-ranks // per_node), per_node=per_node)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loads:
    """Bytes on the wires for each byte of the collective, at the busiest member and node.

    `port` passes through a member's port each way and stays in the node; `nic` leaves (and
    enters) a node on behalf of the group, all its members together. Bytes are as nccl-tests
    counts them: the all-reduced buffer, the gathered result, the buffer before reduce-scatter,
    one rank's whole buffer in all-to-all.
    """

    port: float
    nic: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Dependent messages on the longest way of one chunk: within nodes, and between them."""

    intra: int
    inter: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """The fluid reading of one call: a delay, then bytes through ports and NICs.

    `latency` (s) is software, dependent steps and pipeline fill. `port` bytes pass each member's
    port each way, `nic` bytes leave (and enter) each node, shared evenly by the NICs of its
    members. Both include what the protocol adds. On an idle network the call takes
    latency + max(port / port capacity, nic / members a node / NIC share).
    """

    latency: float
    port: float = 0.0
    nic: float = 0.0
    algorithm: str = ""
    protocol: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """What a collective library finds when it looks at the machine: the hardware, in short.

    Bandwidths are line rates each way: `port_bandwidth` of one GPU's NVLink (or PCIe) port,
    `nic_bandwidth` of one NIC; the library's achievable fractions are its own constants.
    `mesh[i][j]` counts the NVLink cables between GPUs i and j of a node without switch, each of
    `cable_bandwidth`; empty when a switch joins the ports. `latency` (s) is that of one way
    through the network; None stands for what is usual for its kind. `efficiency` is the share of
    payload in what the network's wires carry.
    """

    generation: Generation
    gpus_per_node: int
    port_bandwidth: float
    nics_per_node: int = 0
    nic_bandwidth: float = 0.0
    network: str = "none"
    nvls: bool = False
    mesh: tuple[tuple[int, ...], ...] = ()
    cable_bandwidth: float = 0.0
    latency: float | None = None
    port_latency: float | None = None
    efficiency: float = 1.0

    def nic_share(self, per_node: int) -> float:
        """Network bandwidth (B/s) of a node for a group with `per_node` members in it.

        A member reaches the network through its own NIC; NICs fewer than GPUs are shared.

        >>> fabric = Fabric(generation="ampere", gpus_per_node=8, port_bandwidth=300e9,
        ...                 nics_per_node=4, nic_bandwidth=12.5e9, network="efa")
        >>> [fabric.nic_share(members) / 12.5e9 for members in (1, 2, 8)]
        [1.0, 1.0, 4.0]
        """
        nics = -(-self.nics_per_node * min(per_node, self.gpus_per_node) // self.gpus_per_node)
        return nics * self.nic_bandwidth

    def duration(self, wire: Wire, shape: Shape) -> float:
        """Seconds that `wire` takes when nothing else uses the network."""
        port = wire.port / self.port_bandwidth
        nic = wire.nic / self.nic_share(shape.per_node) if wire.nic else 0.0
        return wire.latency + max(port, nic)
