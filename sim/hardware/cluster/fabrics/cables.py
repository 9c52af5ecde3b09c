"""Cables between the devices of a node: a full mesh, a listed graph, a ring, a torus. There is no
switch: NVLink cables run from device to device.
"""

from abc import ABC, abstractmethod
from itertools import combinations
from typing import Annotated, ClassVar, Literal

from sim.config.dataclass import dataclass
from sim.config.units import Ge, Le
from sim.hardware.cluster.grid import grid_of
from sim.hardware.cluster.node_fabric import NodeFabric, NvLinks, Torus
from sim.hardware.cluster.route import adjacency, reachable, shortest_path


@dataclass(frozen=True, kw_only=True)
class CabledFabric(NodeFabric, ABC):
    """A device's bandwidth is divided evenly over its NVLinks.

    `spread` says that software uses all NVLinks at once, as NCCL's edge-disjoint rings do. Each
    device then has a port that carries all its NVLinks together. Otherwise a transfer takes a
    shortest path.
    """

    spread: bool = False

    @abstractmethod
    def nvlinks(self, slots: int) -> NvLinks:
        """The cables between slots."""

    @property
    def ports(self) -> bool:
        return self.spread

    def check(self, slots: int) -> None:
        reached = reachable(0, lambda slot: self.neighbours(slot, slots))
        if stray := [slot for slot in reached if slot >= slots]:
            raise ValueError(f"a cable leads to slot {min(stray)} of a node of {slots} GPUs")
        if len(reached) < slots:
            lost = next(slot for slot in range(slots) if slot not in reached)
            raise ValueError(f"no path leads from gpu 0 to gpu {lost}; add a cable to it")

    def _counts(self, slots: int) -> dict[int, dict[int, int]]:
        """The neighbours of each slot, with the number of NVLinks to each neighbour."""
        return adjacency(self.nvlinks(slots))

    def neighbours(self, slot: int, slots: int) -> tuple[int, ...]:
        return tuple(self._counts(slots).get(slot, {}))

    def path(self, source: int, target: int, slots: int) -> tuple[int, ...]:
        """A shortest path; the way back is the same path reversed."""
        if source > target:
            return tuple(reversed(self.path(target, source, slots)))
        return shortest_path(source, target, lambda slot: self.neighbours(slot, slots))

    def port_bandwidth(self, slots: int, used: int) -> float:
        """The device with the fewest cables to other devices in use sets the bandwidth."""
        if used == 1:
            return self.bandwidth
        counts = self._counts(slots)
        within = [sum(n for peer, n in counts[slot].items() if peer < used) for slot in range(used)]
        return self.nvlink_bandwidth(slots) * min(within)

    def nvlink_bandwidth(self, slots: int) -> float:
        return self.bandwidth / max(sum(to.values()) for to in self._counts(slots).values())

    def cable_bandwidth(self, a: int, b: int, slots: int) -> float:
        return self.nvlink_bandwidth(slots) * self._counts(slots)[a][b]

    def mesh(self, slots: int) -> tuple[tuple[int, ...], ...]:
        counts = self._counts(slots)
        return tuple(tuple(counts[a].get(b, 0) for b in range(slots)) for a in range(slots))


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
    """Every device has cables to the devices before and after it."""

    fabric: Literal["ring"] = "ring"
    title: ClassVar[str] = "NVLink ring"

    def nvlinks(self, slots: int) -> NvLinks:
        cables = slots if slots > 2 else slots - 1
        return tuple((slot, (slot + 1) % slots, 1) for slot in range(cables))


@dataclass(frozen=True, kw_only=True)
class TorusFabric(NodeFabric):
    """Chips of `cores` devices in a grid that wraps around in each of its `dimensions`.

    Software sends along all dimensions at once, both ways. A device therefore loads one port, which
    stands for all cables of its chip: 2 for each dimension. A cable carries `bandwidth` /
    (2 `dimensions`) for each device of the chip. A slice of a pod is as nearly a cube as possible.
    """

    fabric: Literal["torus"] = "torus"
    title: ClassVar[str] = "torus"

    dimensions: Annotated[int, Ge(1), Le(6)]
    cores: int = 1

    def check(self, slots: int) -> None:
        if slots % self.cores:
            raise ValueError(f"{slots} devices do not fill chips of {self.cores}")

    def port_bandwidth(self, slots: int, used: int) -> float:
        """A dimension in which the devices in use do not extend adds nothing."""
        if used <= self.cores:
            return self.bandwidth
        return self.bandwidth * sum(each for _, each in self.torus(used)) / (2 * self.dimensions)

    def torus(self, used: int) -> Torus:
        return tuple((k, min(k - 1, 2)) for k in grid_of(used // self.cores, self.dimensions))
