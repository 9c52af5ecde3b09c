"""Storage: where data sets and checkpoints lie, and which links of a cluster lead there.

A store is a pair of links (written, read) and a link of operations a second. Whatever reads or
writes is traffic on the links of its path, so loaders, checkpoints, offload and gradients share
them as any other traffic does.
"""

from typing import Annotated, Literal

from sim.config.bounds import Ge
from sim.config.dataclass import dataclass
from sim.config.units import BytesPerSecond, Seconds, Share

STORAGE_LINKS = ("storage-up", "storage-down", "operations", "client-up", "client-down")
UNITS = {"operations": "op/s", "cores": "cores", "workers": "team"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """The content of a topology's `[storage]` table.

    `nvme` are the drives of each node, which `[host]` describes; a `parallel` file system or an
    `object` store has bandwidths `read` and `write` and so many `operations` a second (0: no
    limit is known). Each `nodes` neighbouring nodes have a store of their own, all nodes the same
    if it is 0. Nodes reach it over their NICs, or over a network of its own that gives each node
    `bandwidth` each way, of which `efficiency` is payload. A request has its first byte after
    `latency`, and at most `stream` bytes a second (0: no limit).

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
        """Whether it lies outside of the nodes."""
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
        """What a link of this kind carries: B/s, or operations a second; 0 where there is none."""
        own = {
            "storage-up": self.write,
            "storage-down": self.read,
            "operations": self.operations,
        }
        return own.get(kind, self.bandwidth)

    def efficiency_of(self, kind: str) -> float:
        """The share of payload there; stores are given as they are measured."""
        return self.efficiency if kind.startswith("client") else 1.0
