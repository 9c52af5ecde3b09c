"""A torus of cables inside one fast domain, as the slices of TPU pods are wired."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Le

from sim.hardware.cluster.grid import grid_of
from sim.hardware.cluster.node_fabric import NodeFabric, Torus


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
