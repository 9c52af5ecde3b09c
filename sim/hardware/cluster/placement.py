"""Where things are in a cluster: which device in which node, slot and pod, on which NIC."""

from typing import TYPE_CHECKING

from sim.config.checked import Named
from sim.config.dataclass import dataclass
from sim.config.schema import section
from sim.hardware.cluster.host import Host
from sim.hardware.cluster.network import AnyNetwork, ClusterNetwork
from sim.hardware.cluster.node_fabric import AnyNodeFabric
from sim.hardware.cluster.pods import PodNetwork, SwitchedNetwork
from sim.hardware.cluster.price import Price
from sim.hardware.device import Device
from sim.program.operations import Checks

if TYPE_CHECKING:
    from sim.hardware.cluster.storage import Storage
else:
    Storage = section("sim.hardware.cluster.storage:Storage")


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement(metaclass=Named):
    """A cluster of which `gpus` devices are in use, `gpus_per_node` in each node.

    `node` joins the devices of a node, `network` joins the nodes. The cluster has `built` devices
    (0: `gpus`). GPUs are numbered node after node; only a single node may be partly used. `network`
    is None for a cluster of one node, `node` is None if a node is one device. `price`, `host` and
    `storage` are None if unknown. `backend` is the collective library, or a profile of it. Hosts
    may do `checks` before collectives. `states` names files of the same cluster in other states
    (with such checks, or on a bad day), each with its own measurements.

    A job takes whole nodes. Where a node consists of trays of `tray` GPUs, a job takes the fewest
    nodes, and equally many trays of each node. So 256 GPUs are 64 of the 72 GPUs in each of four
    racks. `gpus_per_node` then counts the GPUs in use, of a node's `slots` GPUs (0: all).
    """

    name: str
    device: Device
    gpus: int
    gpus_per_node: int
    node: AnyNodeFabric | None = None
    network: AnyNetwork | None = None
    price: Price | None = None
    host: Host | None = None
    storage: Storage | None = None
    backend: str = "nccl"
    checks: Checks | None = None
    states: tuple[str, ...] = ()
    tray: int = 0
    slots: int = 0
    built: int = 0

    def __post_init__(self) -> None:
        if self.gpus < 1 or self.gpus_per_node < 1:
            raise ValueError("gpus and gpus_per_node must be at least 1")
        if self.tray < 0 or (self.tray and self.gpus_per_node % self.tray):
            raise ValueError(
                f"tray = {self.tray} does not divide the {self.gpus_per_node} GPUs of a node; "
                "leave it out where jobs take whole nodes"
            )
        if self.gpus > self.gpus_per_node and self.gpus % self.gpus_per_node:
            low = self.gpus // self.gpus_per_node * self.gpus_per_node
            raise ValueError(
                f"{self.gpus} GPUs do not fill nodes of {self.gpus_per_node}; "
                f"use {low} or {low + self.gpus_per_node}"
            )
        if self.node is not None:
            self.node.check(self.gpus_per_node)
        elif self.gpus_per_node > 1:
            raise ValueError(
                f"nothing joins the {self.gpus_per_node} GPUs of a node; add a [node] table"
            )
        if self.network is not None:
            self.network.check(self.nodes, self.gpus_per_node)
            if not self.slots:  # nodes are whole; partly used nodes have fewer NICs
                self.network.check_whole(self.whole)
            self._check_measured(self.network)
        elif self.nodes > 1:
            raise ValueError(
                f"nothing joins its {self.nodes} nodes; use at most {self.gpus_per_node} GPUs "
                "or add a [network] table"
            )

    def _check_measured(self, network: ClusterNetwork) -> None:
        """Refuse measurements within one node, and measurements that did not fill their nodes."""
        whole = self.slots or self.gpus_per_node
        for reading in network.measured:
            if self.tray == 0 and (reading.gpus <= whole or reading.gpus % whole):
                raise ValueError(
                    f"network.measured: {reading.gpus} devices do not fill several nodes of "
                    f"{whole}; give a multiple of {whole}, at least {2 * whole}"
                )

    def taken(self, gpus: int) -> int:
        """How many GPUs of each of its nodes a job of `gpus` GPUs takes."""
        whole = self.slots or self.gpus_per_node
        if not self.tray or gpus <= whole:
            return whole
        nodes = range(-(-gpus // whole), gpus // self.tray + 1)
        return next((gpus // n for n in nodes if gpus % (n * self.tray) == 0), whole)

    @property
    def size(self) -> int:
        """How many devices the cluster has, in use or not."""
        return max(self.built, self.gpus)

    @property
    def whole(self) -> int:
        """How many nodes the cluster has, in use or not."""
        return -(-self.size // (self.slots or self.gpus_per_node))

    @property
    def nodes(self) -> int:
        """How many nodes are in use."""
        return -(-self.gpus // self.gpus_per_node)

    @property
    def pods(self) -> int:
        """How many pods are in use; 1 where their uplinks cannot limit anything."""
        return self.pod_of(self.nodes - 1) + 1

    @property
    def divided(self) -> bool:
        """Whether the cluster has several pods, in use or not; storage is then above them."""
        network = self.network
        return (
            isinstance(network, PodNetwork)
            and network.has_pods
            and network.nodes_per_pod < self.whole
        )

    def store_of(self, node: int) -> int:
        """The number of the store outside of the nodes that a node uses; 0 where there is none."""
        return self.storage.place_of(node) if self.storage and self.storage.remote else 0

    def node_of(self, gpu: int) -> int:
        """The node that holds a GPU."""
        return gpu // self.gpus_per_node

    def slot_of(self, gpu: int) -> int:
        """The GPU's place in its node."""
        return gpu % self.gpus_per_node

    def nic_of(self, gpu: int) -> tuple[int, int]:
        """(node, j): the NIC that a GPU uses; slots share the NICs of a node evenly."""
        if not isinstance(self.network, SwitchedNetwork):
            raise ValueError(f"{self.name} has no NICs")
        return self.node_of(gpu), self.network.nic_of(self.slot_of(gpu), self.gpus_per_node)

    def host_link_of(self, gpu: int) -> tuple[int, int]:
        """(node, j): the PCIe link by which a GPU reaches its host."""
        if self.host is None:
            raise ValueError(f"{self.name} has no links to its hosts")
        return self.node_of(gpu), self.slot_of(gpu) // self.host.devices_per_link

    def pod_of(self, node: int) -> int:
        """The pod whose uplinks a node shares; 0 where uplinks cannot limit anything."""
        return 0 if self.network is None else self.network.pod_of(node)

    @property
    def hierarchical(self) -> bool:
        """Whether all links are ports, NICs and pod uplinks, which need not be enumerated."""
        ports = self.node is None or self.node.ports
        return ports and not (self.network is not None and self.network.cabled)
