"""Switches between nodes: a single switch, a fat tree (Leiserson 1985), a fat tree of rails."""

from typing import ClassVar, Literal

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.hardware.cluster.network import Route
from sim.hardware.cluster.pods import PodNetwork, SwitchedNetwork


@dataclass(frozen=True, kw_only=True)
class Switch(SwitchedNetwork):
    """A single switch; only the NICs limit messages."""

    shape: Literal["switch"] = "switch"


@dataclass(frozen=True, kw_only=True)
class FatTree(PodNetwork):
    """Any NIC reaches any other through the tree."""

    shape: Literal["fat-tree"] = "fat-tree"


@dataclass(frozen=True, kw_only=True)
class RailOptimised(PodNetwork):
    """NIC j of every node is on rail j, which has leaf switches of its own.

    With `pxn` a message to another rail first goes through NVSwitch to the device on that rail
    (NCCL 2.12); otherwise it goes up to the spines. Without `spines` (Wang et al. 2023,
    "Rail-only") nothing joins the rails, and `pxn` is the only way to another rail.
    """

    shape: Literal["rail-optimised"] = "rail-optimised"
    rails: ClassVar[bool] = True
    spines: bool = True
    pxn: bool = True

    @property
    def planes(self) -> int:
        return 1 if self.spines else self.nics

    @property
    def cabled(self) -> bool:
        return super().cabled or not self.pxn

    def route(
        self, source: int, target: int, nics: tuple[int, int] = (0, 0), path: int = 0
    ) -> Route:
        if nics[0] != nics[1] and not self.spines:
            fault = f"nothing joins rail {nics[0]} to rail {nics[1]}"
            raise InputError("network", fault, "set pxn = true, or spines = true")
        return super().route(source, target, nics, path)
