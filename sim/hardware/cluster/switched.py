"""Networks of switches that nodes reach through NICs."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from sim.hardware.cluster.link import Link
from sim.hardware.cluster.network import ClusterNetwork


@dataclass(frozen=True, kw_only=True)
class SwitchedNetwork(ClusterNetwork):
    """Nodes that reach switches through `nics` NICs each, shared evenly by their slots unless
    `nic_of_slot` says otherwise."""

    nics: int = field()
    nic_of_slot: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if any(not 0 <= nic < self.nics for nic in self.nic_of_slot):
            raise ValueError(f"nic_of_slot names a NIC that is not among {self.nics}")

    def check(self, nodes: int, slots: int) -> None:
        super().check(nodes, slots)
        if self.nics > slots:
            raise ValueError(
                f"network.nics = {self.nics} for {slots} GPUs a node, each of which uses one; "
                "count those of one GPU as one NIC with the bandwidth of all"
            )
        if len(self.nic_of_slot) not in (0, slots):
            raise ValueError(f"nic_of_slot needs {slots} entries, one for each slot")

    def with_slots(self, slots: int, before: int) -> "SwitchedNetwork":
        """With the NICs of those slots only."""
        return replace(self, nics=-(-self.nics * slots // before))

    def nic_of(self, slot: int, slots: int) -> int:
        """The NIC that a GPU uses."""
        return self.nic_of_slot[slot] if self.nic_of_slot else slot * self.nics // slots

    def links(self, nodes: int) -> Iterator[Link]:
        for node in range(nodes):
            for nic in range(self.nics):
                yield from (("nic-up", node, nic), ("nic-down", node, nic))
        yield from super().links(nodes)

    def has_link(self, link: Link, nodes: int) -> bool:
        match link:
            case ("nic-up" | "nic-down", node, nic):
                return node < nodes and nic < self.nics
        return super().has_link(link, nodes)

    def link_names(self, nodes: int) -> Iterator[str]:
        yield f"node0.nic0 to node{nodes - 1}.nic{self.nics - 1}"
        yield from super().link_names(nodes)

    def bandwidth_of(self, link: Link) -> float:
        return self.bandwidth if link[0] in ("nic-up", "nic-down") else super().bandwidth_of(link)

    def latency_of(self, link: Link) -> float:
        return self.latency / 2  # a NIC is half of the way
