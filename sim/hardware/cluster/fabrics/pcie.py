"""A PCIe switch: every device has a port to it, and the NICs hang on it too."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from sim.hardware.cluster.node_fabric import NodeFabric


@dataclass(frozen=True, kw_only=True)
class Pcie(NodeFabric):
    """Traffic to the NICs passes through the devices' ports."""

    fabric: Literal["pcie"] = "pcie"
    title: ClassVar[str] = "PCIe switch"
    switched: ClassVar[bool] = True
    network_through_ports: ClassVar[bool] = True
