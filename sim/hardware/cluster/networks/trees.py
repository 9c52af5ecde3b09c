"""Switches between nodes: one, a fat tree (Leiserson 1985), a fat tree of rails."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from sim.hardware.cluster.pods import PodNetwork, SwitchedNetwork


@dataclass(frozen=True, kw_only=True)
class Switch(SwitchedNetwork):
    """Only the NICs limit anything."""

    shape: Literal["switch"] = "switch"


@dataclass(frozen=True, kw_only=True)
class FatTree(PodNetwork):
    """Any NIC reaches any other through the tree."""

    shape: Literal["fat-tree"] = "fat-tree"


@dataclass(frozen=True, kw_only=True)
class RailOptimised(PodNetwork):
    """A message to another rail first goes through NVSwitch to the device on that rail."""

    shape: Literal["rail-optimised"] = "rail-optimised"
    rails: ClassVar[bool] = True
