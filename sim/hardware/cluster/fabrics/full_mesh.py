"""A full mesh: every two devices of a node are joined, as by AMD's xGMI."""

from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar, Literal

from sim.hardware.cluster.cabled_fabric import CabledFabric
from sim.hardware.cluster.node_fabric import NvLinks


@dataclass(frozen=True, kw_only=True)
class FullMesh(CabledFabric):
    """A cable between every two devices, all alike."""

    fabric: Literal["full-mesh"] = "full-mesh"
    title: ClassVar[str] = "full mesh"

    def nvlinks(self, slots: int) -> NvLinks:
        return tuple((a, b, 1) for a, b in combinations(range(slots), 2))
