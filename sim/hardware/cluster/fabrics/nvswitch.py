"""NVSwitch: every device has a port to a non-blocking switch."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from sim.hardware.cluster.node_fabric import NodeFabric


@dataclass(frozen=True, kw_only=True)
class NvSwitch(NodeFabric):
    """`reduces` marks a switch that adds up itself (NVLink SHARP)."""

    fabric: Literal["nvswitch"] = "nvswitch"
    title: ClassVar[str] = "NVSwitch"
    switched: ClassVar[bool] = True
    relays: ClassVar[bool] = True

    reduces: bool = False
