"""Links between the devices of a node; `sim.hardware.cluster.fabrics` has the fabrics."""

from dataclasses import field
from typing import Annotated, ClassVar

from sim.config.dataclass import dataclass
from sim.config.schema import Tagged
from sim.config.units import BytesPerSecond, Seconds, Share
from sim.program.operations import AlgorithmChoice

NvLinks = tuple[tuple[int, int, int], ...]
"""Cables, each as (slot, slot, number of NVLinks)."""

Torus = tuple[tuple[int, int], ...]
"""For each dimension of a torus: (chips along it, cables that each chip has along it)."""


@dataclass(frozen=True, kw_only=True)
class NodeFabric:
    """The inside of a node: keys that all fabrics share, and methods that each may override.

    `bandwidth` is the total that one device can send (and receive). `latency` is the time from
    device to device (through the switch, or over one cable), and `efficiency` the share of payload
    in the bytes on the wire. `algorithm` is used for collectives within a node, instead of the
    library's own choice.
    """

    title: ClassVar[str]
    """The fabric's name in printed texts."""
    network_through_ports: ClassVar[bool] = False
    """Whether the traffic to the NICs passes through the devices' ports too."""
    relays: ClassVar[bool] = False
    """Whether NCCL hands messages to another device of the node on their way to a NIC (PXN)."""
    switched: ClassVar[bool] = False
    """Whether a switch joins the devices; only their ports limit messages then."""

    fabric: str
    bandwidth: BytesPerSecond
    latency: Seconds
    efficiency: Share = 1.0
    algorithm: AlgorithmChoice = ()
    spread: bool = field(default=False, init=False)
    """Whether software uses all NVLinks of a device at once."""
    reduces: bool = field(default=False, init=False)
    """Whether the switch adds up the devices' data itself (NVLink SHARP, which NVLS needs)."""

    @property
    def ports(self) -> bool:
        """Whether traffic inside the node loads ports only."""
        return True

    def check(self, slots: int) -> None:
        """Raise `ValueError` where the fabric cannot join `slots` devices."""

    def port_bandwidth(self, slots: int, used: int) -> float:
        """B/s between a device and the others if the first `used` of `slots` devices are in use."""
        return self.bandwidth

    def torus(self, used: int) -> Torus:
        """The grid of chips that the first `used` devices fill; () for no grid."""
        return ()

    def neighbours(self, slot: int, slots: int) -> tuple[int, ...]:
        """The slots that a cable joins to `slot`."""
        return ()

    def path(self, source: int, target: int, slots: int) -> tuple[int, ...]:
        """The slots on the way from `source` to `target`, both ends included."""
        return source, target

    def nvlinks(self, slots: int) -> NvLinks:
        """The cables between slots; () with a switch."""
        return ()

    def mesh(self, slots: int) -> tuple[tuple[int, ...], ...]:
        """The number of NVLinks between every two slots, as a matrix; () with a switch."""
        return ()

    def nvlink_bandwidth(self, slots: int) -> float:
        """B/s of a single NVLink, each way; 0 with a switch."""
        return 0.0

    def cable_bandwidth(self, a: int, b: int, slots: int) -> float:
        """B/s of the NVLinks between two slots, each way."""
        raise ValueError(f"{self.title} has no cable from slot {a} to slot {b}")


AnyNodeFabric = Annotated[NodeFabric, Tagged("fabric", "sim.hardware.cluster.fabrics")]
