"""A switch between the devices of a node: NVSwitch or PCIe."""

from typing import ClassVar, Literal

from sim.config.dataclass import dataclass
from sim.hardware.cluster.node_fabric import NodeFabric


@dataclass(frozen=True, kw_only=True)
class NvSwitch(NodeFabric):
    """`reduces` marks a switch that adds up the devices' data itself (NVLink SHARP)."""

    fabric: Literal["nvswitch"] = "nvswitch"
    title: ClassVar[str] = "NVSwitch"
    switched: ClassVar[bool] = True
    relays: ClassVar[bool] = True

    reduces: bool = False


@dataclass(frozen=True, kw_only=True)
class Pcie(NodeFabric):
    """A PCIe switch: traffic to the NICs passes through the devices' ports, too."""

    fabric: Literal["pcie"] = "pcie"
    title: ClassVar[str] = "PCIe switch"
    switched: ClassVar[bool] = True
    network_through_ports: ClassVar[bool] = True
