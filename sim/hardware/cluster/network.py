"""Networks between the nodes of a cluster; `sim.hardware.cluster.networks` has the shapes."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from sim.config.schema import Tagged
from sim.config.units import BytesPerSecond, Seconds, Share
from sim.hardware.cluster.link import Link, Route
from sim.program.checks import MeasuredBandwidth
from sim.program.selection import AlgorithmChoice

NetworkKind = Literal[
    "infiniband", "roce", "omnipath", "omnipath-2021", "efa", "ethernet", "ici"
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ClusterNetwork:
    """The network between nodes: the keys of every shape, and what each shape answers.

    `bandwidth` is that of one NIC (of one cable where nodes are cabled to each other) in each
    direction, `latency` from node to node through one switch (over one cable), `efficiency` the
    share of payload in what the wire carries, `algorithm` what collectives of groups on several
    nodes take instead of what their library would choose. `measured` collectives tell the state
    that it is in (`sim.collectives.measured_network`).
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

    def check(self, nodes: int, slots: int) -> None:
        """Raise `ValueError` where it cannot join so many nodes of `slots` GPUs each."""

    def with_slots(self, slots: int, before: int) -> "ClusterNetwork":
        """The network of nodes of which `slots` GPUs are in use instead of `before`."""
        return self

    def pod_of(self, node: int) -> int:
        """The pod whose uplinks a node shares; 0 where they cannot limit anything."""
        return 0

    def route(self, source: int, target: int, nics: tuple[int, int] = (0, 0)) -> Route:
        """The links between two nodes beside their NICs, from one of these to the other."""
        return ()

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
