"""A fat tree (Leiserson 1985), oversubscribed above its pods or not at all."""

from dataclasses import dataclass
from typing import Literal

from sim.hardware.cluster.pods import PodNetwork


@dataclass(frozen=True, kw_only=True)
class FatTree(PodNetwork):
    """Any NIC reaches any other through the tree."""

    shape: Literal["fat-tree"] = "fat-tree"
