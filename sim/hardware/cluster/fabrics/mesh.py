"""Any graph of NVLink cables, such as the hybrid cube mesh of a DGX-1: the file lists them."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from sim.hardware.cluster.cabled_fabric import CabledFabric
from sim.hardware.cluster.node_fabric import NvLinks


@dataclass(frozen=True, kw_only=True)
class NvLinkMesh(CabledFabric):
    """`cables` lists (slot, slot, number of NVLinks)."""

    fabric: Literal["mesh"] = "mesh"
    title: ClassVar[str] = "NVLinks"

    cables: NvLinks

    def __post_init__(self) -> None:
        if any(a == b or min(a, b) < 0 or count < 1 for a, b, count in self.cables):
            raise ValueError("cables join two different slots; write [slot, slot, number]")

    def nvlinks(self, slots: int) -> NvLinks:
        return self.cables
