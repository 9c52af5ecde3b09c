"""Cables between the devices of a node: a full mesh, a listed graph, a ring, a torus."""

from dataclasses import dataclass
from itertools import combinations
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Le

from sim.hardware.cluster.cabled_fabric import CabledFabric
from sim.hardware.cluster.grid import grid_of
from sim.hardware.cluster.node_fabric import NodeFabric, NvLinks, Torus


@dataclass(frozen=True, kw_only=True)
class FullMesh(CabledFabric):
    """A cable between every two devices, all alike."""

    fabric: Literal["full-mesh"] = "full-mesh"
    title: ClassVar[str] = "full mesh"

    def nvlinks(self, slots: int) -> NvLinks:
        return tuple((a, b, 1) for a, b in combinations(range(slots), 2))


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


@dataclass(frozen=True, kw_only=True)
class NvLinkRing(CabledFabric):
    """Every device has cables to the one before and the one after it."""

    fabric: Literal["ring"] = "ring"
    title: ClassVar[str] = "NVLink ring"

    def nvlinks(self, slots: int) -> NvLinks:
        cables = slots if slots > 2 else slots - 1
        return tuple((slot, (slot + 1) % slots, 1) for slot in range(cables))


@dataclass(frozen=True, kw_only=True)
class TorusFabric(NodeFabric):
    """Devices in a grid of so many `dimensions` that wraps around, `cores` of them on one chip.

    Software sends along all dimensions at once, both ways, so that devices load ports which carry
    their chip's cables together: 2 cables a dimension, of `bandwidth` / (2 dimensions) each (times
    `cores` that share them). A slice of a pod is as nearly a cube as its size allows.
    """

    fabric: Literal["torus"] = "torus"
    title: ClassVar[str] = "torus"

    dimensions: Annotated[int, Ge(1), Le(6)]
    cores: int = 1

    def check(self, slots: int) -> None:
        if slots % self.cores:
            raise ValueError(f"{slots} devices do not fill chips of {self.cores}")

    def port_bandwidth(self, slots: int, used: int) -> float:
        """Cables of dimensions in which the devices in use do not extend carry nothing."""
        if used <= self.cores:
            return self.bandwidth
        return self.bandwidth * sum(each for _, each in self.torus(used)) / (2 * self.dimensions)

    def torus(self, used: int) -> Torus:
        return tuple((k, min(k - 1, 2)) for k in grid_of(used // self.cores, self.dimensions))
