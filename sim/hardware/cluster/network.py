"""Networks between the nodes of a cluster; `sim.hardware.cluster.networks` has the shapes.

A link is one direction of a cable; its name stands in `[[straggler]]`, in traces and pictures.
"""

from collections.abc import Iterator, Sequence
from dataclasses import field
from itertools import pairwise
from typing import Annotated, ClassVar, Literal

from sim.config.dataclass import dataclass
from sim.config.schema import Tagged
from sim.config.units import BytesPerSecond, Seconds, Share
from sim.hardware.cluster.price import Bill
from sim.program.calls import AlgorithmChoice, MeasuredBandwidth

Link = tuple[str, int] | tuple[str, int, int]
"""One direction of a connection.

("port-up" | "port-down", gpu): from the GPU into its node's fabric, and back.
("nvlink", a, b): from GPU a to GPU b, in a node without a switch.
("nic-up" | "nic-down", node, j): NIC j of the node, to and from the network.
("pcie-up" | "pcie-down", node, j): PCIe link j of the node, from its devices to the host, and back.
("memory", node): the host's memory, reads and writes together.
("nvme-up" | "nvme-down", node): the node's drives, written and read.
("cores", node): the host's processors, in cores; ("workers", gpu): those of the GPU's loader.
("storage-up" | "storage-down", store): a store, written and read; ("operations", store): a second.
("client-up" | "client-down", node): the node on the network of its storage.
("pod-up" | "pod-down", pod): a pod's uplinks together, where they are oversubscribed.
("leaf-up" | "leaf-down", leaf, j): uplink j of a leaf switch, where uplinks are told apart.
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
    """The network between nodes: the keys of every shape, and what each shape answers.

    `bandwidth` is that of one NIC (of one cable where nodes are cabled to each other) in each
    direction, `latency` from node to node through one switch (over one cable), `efficiency` the
    share of payload in what the wire carries, `algorithm` what collectives of groups on several
    nodes take instead of what their library would choose. `measured` collectives tell the state
    that it is in (`sim.collectives.interconnect`).
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
    """Connections between two NICs."""

    @property
    def cabled(self) -> bool:
        """Whether routes lead over cables that are told apart, not just up and down."""
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
        """Whether a seed decides which way messages take."""
        return False

    def check(self, nodes: int, slots: int) -> None:
        """Raise `ValueError` where it cannot join so many nodes of `slots` GPUs each."""

    def check_whole(self, nodes: int) -> None:
        """Raise `ValueError` where its keys name a part that a cluster of so many nodes lacks."""

    def with_slots(self, slots: int, before: int) -> "ClusterNetwork":
        """The network of nodes of which `slots` GPUs are in use instead of `before`."""
        return self

    @property
    def stretch(self) -> float:
        """How much farther apart its nodes are than their numbers."""
        return 1.0

    def pod_of(self, node: int) -> int:
        """The pod whose uplinks a node shares; 0 where they cannot limit anything."""
        return 0

    def route(
        self, source: int, target: int, nics: tuple[int, int] = (0, 0), path: int = 0
    ) -> Route:
        """The links between two nodes beside their NICs, from one of these to the other, of one of
        their `paths`."""
        return ()

    def beyond(self, nodes: int, extent: int, whole: int) -> float:
        """Seconds beyond `latency` that the hops of a group of so many nodes take on average, the
        last of them so many nodes behind the first, on a network of `whole` nodes."""
        return 0.0

    def above(self, source: int, target: int, whole: int) -> float:
        """Seconds beyond `latency` and the links of `route` between two of `whole` nodes."""
        return 0.0

    def bill(self, nodes: int) -> Bill | None:
        """What it takes to join so many nodes; None where that is unknown."""
        return None

    def links(self, nodes: int) -> Iterator[Link]:
        """All links of so many nodes."""
        yield from ()

    def has_link(self, link: Link, nodes: int) -> bool:
        """Whether `links` has it, without enumerating them."""
        return False

    def link_names(self, nodes: int) -> Iterator[str]:
        """Examples of the links' names, for an error about a wrong one."""
        yield from ()

    def bandwidth_of(self, link: Link) -> float:
        """B/s of one of its links."""
        raise ValueError(f"a {self.shape} network has no link {link!r}")

    def latency_of(self, link: Link) -> float:
        """Seconds that one of its links adds to a message."""
        return self.latency


AnyNetwork = Annotated[ClusterNetwork, Tagged("shape", "sim.hardware.cluster.networks")]
