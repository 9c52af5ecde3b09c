"""Networks between the nodes of a cluster; `sim.hardware.cluster.networks` has the shapes.

A link is one direction of a cable; `[[straggler]]`, traces and pictures name links.
"""

from collections.abc import Iterator, Sequence
from dataclasses import field
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from sim.config.dataclass import dataclass
from sim.config.schema import Tagged
from sim.config.units import BytesPerSecond, Seconds, Share
from sim.program.operations import AlgorithmChoice, MeasuredBandwidth

if TYPE_CHECKING:
    from sim.hardware.cluster.bill import Bill

Link = tuple[str, int] | tuple[str, int, int]
"""One direction of a connection.

("port-up" | "port-down", gpu): from the GPU into its node's fabric, and back.
("nvlink", a, b): from GPU a to GPU b, in a node without a switch.
("nic-up" | "nic-down", node, j): NIC j of the node, to and from the network.
("pcie-up" | "pcie-down", node, j): PCIe link j of the node, from its devices to the host, and back.
("memory", node): the host's memory, reads and writes together.
("nvme-up" | "nvme-down", node): the node's drives, written and read.
("cores", node): the host's processors; ("workers", gpu): worker processes of the GPU's loader.
("storage-up" | "storage-down", store): a store, written and read.
("operations", store): the operations that a store allows a second.
("client-up" | "client-down", node): the node's connection to the network for storage.
("pod-up" | "pod-down", pod): a pod's uplinks together, where they are oversubscribed.
("leaf-up" | "leaf-down", leaf, j): uplink j of a leaf switch, if each is a link of its own.
("edge", a, b): a cable of a torus, dragonfly, mesh or ring, from vertex a to vertex b.
"""

Route = tuple[Link, ...]


def path_links(kind: str, places: Sequence[int]) -> Route:
    """The links from place to place along a path.

    >>> path_links("edge", (0, 4, 5))
    (('edge', 0, 4), ('edge', 4, 5))
    """
    return tuple((kind, a, b) for a, b in pairwise(places))


NetworkKind = Literal[
    "infiniband", "infiniband-host", "roce", "omnipath", "omnipath-2021", "efa", "ethernet", "ici"
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ClusterNetwork:
    """The network between nodes: the keys of every shape, and the methods that shapes implement.

    `bandwidth` is the rate of one NIC (of one cable where nodes are cabled to each other) in each
    direction. `latency` is the time from node to node through one switch (over one cable), and
    `efficiency` the share of payload on the wire. `algorithm` is used for collectives of groups on
    several nodes, instead of the library's own choice. `measured` holds bandwidths of collectives
    on this network; `sim.collectives.interconnect` derives the network's state from them.
    """

    rails: ClassVar[bool] = False
    """Whether a message to another rail changes rails inside its node (NCCL's PXN)."""

    shape: str
    kind: NetworkKind
    bandwidth: BytesPerSecond
    latency: Seconds
    efficiency: Share = 1.0
    algorithm: AlgorithmChoice = ()
    measured: tuple[MeasuredBandwidth, ...] = ()
    nics: int = field(default=0, init=False)
    """NICs of a node; 0 where nodes are cabled to each other."""
    spread: bool = field(default=False, init=False)
    """Whether software uses all cables of a node at once."""
    pxn: bool = field(default=True, init=False)
    """Whether messages may change rails inside their node."""
    paths: int = field(default=1, init=False)
    """How many connections two NICs have."""

    @property
    def cabled(self) -> bool:
        """Whether each cable is a link of its own (otherwise: only ways up and down)."""
        return False

    @property
    def title(self) -> str:
        """The shape with its size."""
        return self.shape

    @property
    def details(self) -> tuple[str, ...]:
        """Further facts for a reader."""
        return ()

    @property
    def hashed(self) -> bool:
        """Whether a seed decides which path messages take."""
        return False

    def check(self, nodes: int, slots: int) -> None:
        """Raise `ValueError` where the network cannot join `nodes` nodes of `slots` GPUs each."""

    def check_whole(self, nodes: int) -> None:
        """Raise `ValueError` where a key names a part that a cluster of `nodes` nodes lacks."""

    def odd(self, nodes: int, slots: int) -> Iterator[str]:
        """Yield unusual facts of the network of `nodes` nodes of `slots` GPUs, in words."""
        yield from ()

    def with_slots(self, slots: int, before: int) -> "ClusterNetwork":
        """The network if `slots` GPUs of each node are in use instead of `before`."""
        return self

    @property
    def stretch(self) -> float:
        """The distance between two nodes, divided by the difference of their numbers."""
        return 1.0

    def pod_of(self, node: int) -> int:
        """The pod whose uplinks a node shares; 0 where uplinks cannot limit anything."""
        return 0

    def route(
        self, source: int, target: int, nics: tuple[int, int] = (0, 0), path: int = 0
    ) -> Route:
        """The links from one node to another, without the NICs at both ends. `nics` are these NICs,
        and `path` is the number of a connection between them, below `paths`."""
        return ()

    def beyond(self, nodes: int, extent: int, whole: int) -> float:
        """Seconds of a mean hop beyond `latency`, in a group of `nodes` nodes whose last node is
        `extent` nodes after its first. The network has `whole` nodes."""
        return 0.0

    def above(self, source: int, target: int, whole: int) -> float:
        """Seconds between two of `whole` nodes, beyond `latency` and the links of `route`."""
        return 0.0

    def bill(self, nodes: int) -> "Bill | None":
        """The switches and cables that join `nodes` nodes; None where they are unknown."""
        return None

    def links(self, nodes: int) -> Iterator[Link]:
        """All links of the network of `nodes` nodes."""
        yield from ()

    def has_link(self, link: Link, nodes: int) -> bool:
        """Whether `links` yields `link`, without enumerating all links."""
        return False

    def link_names(self, nodes: int) -> Iterator[str]:
        """Examples of the links' names, for an error about a wrong name."""
        yield from ()

    def bandwidth_of(self, link: Link) -> float:
        """B/s of a link of this network."""
        raise ValueError(f"a {self.shape} network has no link {link!r}")

    def latency_of(self, link: Link) -> float:
        """Seconds that a link of this network adds to a message."""
        return self.latency


AnyNetwork = Annotated[ClusterNetwork, Tagged("shape", "sim.hardware.cluster.networks")]
