"""Nodes without a switch: NVLink cables from device to device."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from sim.hardware.cluster import paths
from sim.hardware.cluster.node_fabric import NodeFabric, NvLinks


@dataclass(frozen=True, kw_only=True)
class CabledFabric(NodeFabric, ABC):
    """A device's bandwidth is divided evenly over its NVLinks.

    `spread` says that software uses all of them at once, as NCCL's edge-disjoint rings do: the
    node then behaves as ports that carry a device's NVLinks together. Otherwise a transfer takes a
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
        reached = paths.reachable(0, lambda slot: self.neighbours(slot, slots))
        if stray := [slot for slot in reached if slot >= slots]:
            raise ValueError(f"a cable leads to slot {min(stray)} of a node of {slots} GPUs")
        if len(reached) < slots:
            lost = next(slot for slot in range(slots) if slot not in reached)
            raise ValueError(f"no path leads from gpu 0 to gpu {lost}; add a cable to it")

    def _counts(self, slots: int) -> dict[int, dict[int, int]]:
        """For each slot its neighbours with the number of NVLinks."""
        return paths.adjacency(self.nvlinks(slots))

    def neighbours(self, slot: int, slots: int) -> tuple[int, ...]:
        return tuple(self._counts(slots).get(slot, {}))

    def path(self, source: int, target: int, slots: int) -> tuple[int, ...]:
        """The way back is the same reversed."""
        if source > target:
            return tuple(reversed(self.path(target, source, slots)))
        return paths.shortest_path(source, target, lambda slot: self.neighbours(slot, slots))

    def port_bandwidth(self, slots: int, used: int) -> float:
        """Only the cables between the devices used count, those of the least connected one."""
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
