"""Where things are in a cluster: which device in which node, slot and pod, on which NIC."""

from dataclasses import dataclass

from sim.hardware.cluster import graph
from sim.hardware.cluster.fabric import Fabric
from sim.hardware.cluster.network import Network
from sim.hardware.cluster.price import Price
from sim.hardware.device import Device


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """`gpus` devices, `gpus_per_node` to a node, joined by `node` inside and `network` outside.

    GPUs are numbered node after node; only a single node may be partly used. `network` is None
    for a cluster of one node, `node` None where a node is one device, `price` None where unknown.
    `backend` is the collective library, or a profile of it.
    """

    name: str
    device: Device
    gpus: int
    gpus_per_node: int
    node: Fabric | None = None
    network: Network | None = None
    price: Price | None = None
    backend: str = "nccl"

    def __post_init__(self) -> None:
        if self.gpus < 1 or self.gpus_per_node < 1:
            raise ValueError("gpus and gpus_per_node must be at least 1")
        if self.gpus > self.gpus_per_node and self.gpus % self.gpus_per_node:
            low = self.gpus // self.gpus_per_node * self.gpus_per_node
            raise ValueError(
                f"{self.gpus} GPUs do not fill nodes of {self.gpus_per_node}; "
                f"use {low} or {low + self.gpus_per_node}"
            )
        if self.node is None and self.gpus_per_node > 1:
            raise ValueError(
                f"nothing joins the {self.gpus_per_node} GPUs of a node; add a [node] table"
            )
        self._check_network()
        self._check_reachable()

    def _check_network(self) -> None:
        if self.network is None:
            if self.nodes > 1:
                raise ValueError(
                    f"nothing joins its {self.nodes} nodes; use at most {self.gpus_per_node} GPUs "
                    "or add a [network] table"
                )
            return
        if self.network.largest is not None and self.nodes > self.network.largest:
            raise ValueError(
                f"its {self.network.shape} has room for {self.network.largest} nodes, not "
                f"{self.nodes}; use at most {self.network.largest * self.gpus_per_node} GPUs"
            )
        if len(self.network.nic_of_slot) not in (0, self.gpus_per_node):
            raise ValueError(f"nic_of_slot needs {self.gpus_per_node} entries, one for each slot")

    def _check_reachable(self) -> None:
        fabric, network, slots = self.node, self.network, self.gpus_per_node
        if fabric is not None and not fabric.switched:
            seen = graph.reachable(0, lambda slot: fabric.neighbours(slot, slots))
            if stray := [slot for slot in seen if slot >= slots]:
                raise ValueError(f"a cable leads to slot {min(stray)} of a node of {slots} GPUs")
            if lost := set(range(slots)) - seen:
                raise ValueError(f"no path leads from gpu 0 to gpu {min(lost)}; add a cable to it")
        if network is None or network.shape != "graph":
            return
        if lost := set(range(network.size)) - graph.reachable(0, network.neighbours):
            raise ValueError(
                f"no path leads from node 0 to node {min(lost)} (gpu {min(lost) * slots}); "
                "add a cable to it"
            )

    # Where things are.

    @property
    def nodes(self) -> int:
        """Nodes in use."""
        return -(-self.gpus // self.gpus_per_node)

    @property
    def pods(self) -> int:
        """Pods in use; 1 where their uplinks cannot limit anything."""
        return self.pod_of(self.nodes - 1) + 1

    def node_of(self, gpu: int) -> int:
        """The node that holds a GPU."""
        return gpu // self.gpus_per_node

    def slot_of(self, gpu: int) -> int:
        """The GPU's place in its node."""
        return gpu % self.gpus_per_node

    def nic_of(self, gpu: int) -> tuple[int, int]:
        """(node, j): the NIC that a GPU uses; slots share the NICs of a node evenly."""
        if self.network is None or not self.network.nics:
            raise ValueError(f"{self.name} has no NICs")
        slot = self.slot_of(gpu)
        named = self.network.nic_of_slot
        j = named[slot] if named else slot * self.network.nics // self.gpus_per_node
        return self.node_of(gpu), j

    def pod_of(self, node: int) -> int:
        """The pod whose uplinks a node shares; 0 where they cannot limit anything."""
        network = self.network
        return node // network.nodes_per_pod if network is not None and network.has_pods else 0

    @property
    def switched_node(self) -> bool:
        """True where only ports limit the traffic inside a node."""
        return self.node is None or self.node.ports

    @property
    def hierarchical(self) -> bool:
        """True where all links are ports, NICs and pod uplinks, so that none is enumerated."""
        return self.switched_node and not (self.network is not None and self.network.cabled)
