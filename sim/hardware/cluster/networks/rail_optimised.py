"""A fat tree of rails: NIC j of every node is on rail switch j."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from sim.hardware.cluster.pods import PodNetwork


@dataclass(frozen=True, kw_only=True)
class RailOptimised(PodNetwork):
    """A message to another rail first goes through NVSwitch to the device on that rail."""

    shape: Literal["rail-optimised"] = "rail-optimised"
    rails: ClassVar[bool] = True
