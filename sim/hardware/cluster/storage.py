"""The store of data sets and checkpoints.

A store is a link for writes, a link for reads, and a link that limits operations a second. Loaders
and checkpoints are traffic on the links of their paths, and share them as other traffic does.
"""

from typing import Annotated, Literal

from sim.config.dataclass import dataclass
from sim.config.units import BytesPerSecond, Ge, Seconds, Share


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """The content of a topology's `[storage]` table.

    The kind "nvme" means the drives of each node, which `[host]` describes. A "parallel" file
    system or an "object" store has bandwidths `read` and `write` and allows `operations` a second
    (0: no limit is known). Every `nodes` neighbouring nodes share a store of their own; with 0, all
    nodes share one store. Nodes reach the store over their NICs, or over a network for storage.
    This network gives each node `bandwidth` each way (0: none), of which `efficiency` is payload.
    A request's first byte arrives after `latency`, the rest at up to `stream` B/s (0: no limit).

    >>> Storage(kind="parallel", read=40e9, write=20e9, nodes=32).place_of(33)
    1
    """

    kind: Literal["nvme", "parallel", "object"]
    read: BytesPerSecond = 0.0
    write: BytesPerSecond = 0.0
    operations: Annotated[float, Ge(0)] = 0.0
    latency: Seconds = 0.0
    stream: BytesPerSecond = 0.0
    nodes: Annotated[int, Ge(0)] = 0
    bandwidth: BytesPerSecond = 0.0
    efficiency: Share = 1.0

    def __post_init__(self) -> None:
        given = bool(self.read and self.write)
        if self.kind != "nvme" and not given:
            raise ValueError(f"a store of kind {self.kind} needs read and write, its bandwidths")
        if self.kind == "nvme" and (self.read or self.write or self.nodes or self.bandwidth):
            raise ValueError("drives are the hosts' own: give host.read and host.write instead")

    @property
    def remote(self) -> bool:
        """Whether the store lies outside of the nodes."""
        return self.kind != "nvme"

    def place_of(self, node: int) -> int:
        """The number of the store that a node uses."""
        if not self.remote:
            return node
        return node // self.nodes if self.nodes else 0

    @property
    def shared(self) -> bool:
        """Whether several nodes use one store."""
        return self.remote and self.nodes != 1

    def bandwidth_of(self, kind: str) -> float:
        """The rate of a link: B/s, or operations a second; 0 where the store has no such link."""
        rates = {
            "storage-up": self.write,
            "storage-down": self.read,
            "operations": self.operations,
        }
        return rates.get(kind, self.bandwidth)

    def efficiency_of(self, kind: str) -> float:
        """The share of payload on a link: 1 for the store itself, whose rates are measured."""
        return self.efficiency if kind.startswith("client") else 1.0
