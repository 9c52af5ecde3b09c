"""A ring of NVLink cables."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from sim.hardware.cluster.cabled_fabric import CabledFabric
from sim.hardware.cluster.node_fabric import NvLinks


@dataclass(frozen=True, kw_only=True)
class NvLinkRing(CabledFabric):
    """Every device has cables to the one before and the one after it."""

    fabric: Literal["ring"] = "ring"
    title: ClassVar[str] = "NVLink ring"

    def nvlinks(self, slots: int) -> NvLinks:
        cables = slots if slots > 2 else slots - 1
        return tuple((slot, (slot + 1) % slots, 1) for slot in range(cables))
