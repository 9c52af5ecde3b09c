"""What joins the devices of one node: NVSwitch, a PCIe switch, or NVLink cables between them."""

from dataclasses import dataclass
from functools import cache
from typing import Literal

from sim.config.units import BytesPerSecond, Seconds
from sim.hardware.cluster import graph

Cables = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """The inside of a node; `bandwidth` is what one device can send (and receive) in all.

    - `nvswitch`, `pcie`: every device has a port to a non-blocking switch. Behind a PCIe switch
      the traffic to the NICs passes through the port too; behind NVSwitch it does not.
    - `ring`: every device has cables to the one before and the one after it.
    - `mesh`: `cables` lists (slot, slot, number of NVLinks).

    In a ring or mesh a device's bandwidth is divided evenly over its NVLinks. `spread` says that
    software uses all of them at once, as NCCL's edge-disjoint rings do: the node then behaves as
    ports that carry a device's NVLinks together. Otherwise a transfer takes a shortest path.

    `latency` is from device to device (through the switch, or over one cable), `efficiency` the
    share of payload in what the wire carries. `reduces` marks a switch that adds up itself
    (NVLink SHARP, what NCCL's NVLS needs).
    """

    fabric: Literal["nvswitch", "pcie", "ring", "mesh"]
    bandwidth: BytesPerSecond
    latency: Seconds
    efficiency: float = 1.0
    cables: Cables = ()
    spread: bool = False
    reduces: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.efficiency <= 1:
            raise ValueError(
                f"efficiency = {self.efficiency} must be above 0 and at most 1; e.g. 0.98"
            )
        if bool(self.cables) != (self.fabric == "mesh"):
            raise ValueError(
                f"fabric = {self.fabric!r} {'needs' if not self.cables else 'has no'} cables; "
                "`cables = [[0, 1, 2], ...]` belongs to fabric = 'mesh'"
            )
        if any(a == b or min(a, b) < 0 or count < 1 for a, b, count in self.cables):
            raise ValueError("cables join two different slots; write [slot, slot, number]")
        if self.switched and self.spread:
            raise ValueError("spread is for a ring or a mesh; leave it out")

    @property
    def switched(self) -> bool:
        """True where a switch joins the devices, so that only ports limit them."""
        return self.fabric in ("nvswitch", "pcie")

    @property
    def ports(self) -> bool:
        """True where traffic inside the node loads ports only."""
        return self.switched or self.spread

    def nvlinks(self, slots: int) -> Cables:
        """(slot, slot, NVLinks) of a ring or mesh of `slots` devices."""
        if self.fabric == "ring":
            return tuple((s, (s + 1) % slots, 1) for s in range(slots if slots > 2 else slots - 1))
        return self.cables

    def neighbours(self, slot: int, slots: int) -> tuple[int, ...]:
        """The slots that a cable joins to this one."""
        return tuple(_adjacency(self.nvlinks(slots)).get(slot, {}))

    def path(self, source: int, target: int, slots: int) -> tuple[int, ...]:
        """The slots on the shortest path; the way back is the same reversed."""
        if source > target:
            return tuple(reversed(self.path(target, source, slots)))
        return graph.shortest_path(source, target, lambda slot: self.neighbours(slot, slots))

    def port_bandwidth(self, slots: int, used: int) -> float:
        """What one of the first `used` of `slots` devices can exchange with the other `used`.

        In a mesh only the cables between them count, those of the least connected device.
        """
        if self.switched or used == 1:
            return self.bandwidth
        counts = _adjacency(self.nvlinks(slots))
        each = [sum(n for s, n in counts[slot].items() if s < used) for slot in range(used)]
        return self.nvlink_bandwidth(slots) * min(each)

    def cable_bandwidth(self, a: int, b: int, slots: int) -> float:
        """One direction of the NVLinks between two slots."""
        return self.nvlink_bandwidth(slots) * _adjacency(self.nvlinks(slots))[a][b]

    def nvlink_bandwidth(self, slots: int) -> float:
        """One direction of a single NVLink of a ring or mesh."""
        return self.bandwidth / self._links_of_a_device(slots)

    def mesh(self, slots: int) -> tuple[tuple[int, ...], ...]:
        """NVLinks between every two slots of a ring or mesh, as a matrix; () with a switch."""
        if self.switched:
            return ()
        counts = _adjacency(self.nvlinks(slots))
        return tuple(tuple(counts[a].get(b, 0) for b in range(slots)) for a in range(slots))

    def _links_of_a_device(self, slots: int) -> int:
        return max(sum(to.values()) for to in _adjacency(self.nvlinks(slots)).values())


@cache
def _adjacency(cables: Cables) -> dict[int, dict[int, int]]:
    found: dict[int, dict[int, int]] = {}
    for a, b, count in cables:
        for here, there in ((a, b), (b, a)):
            to = found.setdefault(here, {})
            to[there] = to.get(there, 0) + count
    return found
