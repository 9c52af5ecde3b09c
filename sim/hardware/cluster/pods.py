"""Networks of switches, which nodes reach through NICs.

Switches may form pods, whose uplinks may carry less than the NICs below them.
"""

from collections.abc import Iterator
from dataclasses import field, replace
from typing import TYPE_CHECKING, Annotated, Literal

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.units import Ge, Seconds
from sim.hardware.cluster.network import ClusterNetwork, Link, Route

if TYPE_CHECKING:
    from sim.hardware.cluster.bill import Bill

HOPS = {"infiniband": 0.28e-6, "infiniband-host": 0.28e-6, "omnipath": 0.26e-6,
        "omnipath-2021": 0.26e-6}  # fmt: skip
"""Seconds of a switch and of 30 m of fibre, at 5 ns a metre. A switch takes 0.13 us (NVIDIA QM8700
and QM9700 data sheets) or 0.11 us (Intel Omni-Path Edge Switch 100 data sheet)."""
HOP = 1.0e-6
"""Seconds of an Ethernet switch and its cable (assumed, as RoCE's latencies in topologies are)."""


@dataclass(frozen=True, kw_only=True)
class SwitchedNetwork(ClusterNetwork):
    """Nodes that reach switches through `nics` NICs each. The slots of a node share them evenly,
    unless `nic_of_slot` gives the NIC of each slot."""

    nics: int = field()
    nic_of_slot: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if any(not 0 <= nic < self.nics for nic in self.nic_of_slot):
            raise ValueError(f"nic_of_slot names a NIC that is not among {self.nics}")

    def check(self, nodes: int, slots: int) -> None:
        super().check(nodes, slots)
        if self.nics > slots:
            raise ValueError(
                f"network.nics = {self.nics} for {slots} GPUs a node, but a GPU uses only one NIC; "
                "count all NICs of a GPU as one NIC with their total bandwidth"
            )
        if len(self.nic_of_slot) not in (0, slots):
            raise ValueError(f"nic_of_slot needs {slots} entries, one for each slot")

    def odd(self, nodes: int, slots: int) -> Iterator[str]:
        if slots % self.nics and not self.nic_of_slot:
            yield f"network.nics: {slots} GPUs of a node share {self.nics} NICs unevenly"

    def with_slots(self, slots: int, before: int) -> "SwitchedNetwork":
        """The network with the NICs of the used slots only."""
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


@dataclass(frozen=True, kw_only=True)
class PodNetwork(SwitchedNetwork):
    """Pods of `nodes_per_pod` nodes. A pod's uplinks carry 1/`oversubscription` of the bandwidth of
    its NICs. With an oversubscription of 1, uplinks never limit anything.

    Switches have `radix` ports, half of them upwards (0: unknown, then a pod is one leaf). Every
    switch beyond the first adds `hop_latency`, by default `HOPS` of the kind of network.

    With `routing = "adaptive"` all uplinks of a switch are one link: packets take any of them.
    Otherwise each uplink of a leaf switch is a cable as fast as a NIC, and leads to its own spine.
    A connection takes one uplink, chosen by its target (`static`, D-mod-K of Zahavi 2012), or by a
    hash of its ends with the `seed` (`ecmp`). Two NICs have `paths` connections
    (NCCL_IB_QPS_PER_CONNECTION), each with a hash of its own. The cables (leaf, uplink) in `down`
    carry nothing.
    """

    nodes_per_pod: Annotated[int, Ge(0)] = 0
    oversubscription: Annotated[float, Ge(1)] = 1.0
    radix: Annotated[int, Ge(0)] = 0
    hop_latency: Seconds | None = None
    routing: Literal["adaptive", "ecmp", "static"] = "adaptive"
    seed: Annotated[int, Ge(0)] = 0
    paths: Annotated[int, Ge(1)] = 1
    down: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.radix and not self.leaf:
            least = 2 * (1 if self.rails else self.nics)
            fault = f"radix: half of the {self.radix} ports of a switch have no room for a node"
            raise ValueError(f"{fault}; set radix at least {least}, or leave it out")
        if self.cabled and not self.leaf:
            raise ValueError("its leaf switches are unknown; add radix, the ports of a switch")
        for leaf, cable in self.down:
            if not 0 <= cable < self.uplinks:
                raise ValueError(f"down: a leaf has uplinks 0 to {self.uplinks - 1}, not {cable}")
            if sum(other == leaf for other, _ in set(self.down)) == self.uplinks:
                raise ValueError(f"down: leaf {leaf} has no uplink left")
        if self.has_pods and not self.nodes_per_pod:
            raise ValueError("oversubscription needs pods; add nodes_per_pod = ...")

    def check_whole(self, nodes: int) -> None:
        for leaf, _ in self.down:
            if not 0 <= leaf < self.leaves(nodes):
                there = self.leaves(nodes)
                raise ValueError(f"down: there is no leaf {leaf}; name leaves 0 to {there - 1}")

    def odd(self, nodes: int, slots: int) -> Iterator[str]:
        yield from super().odd(nodes, slots)
        pod, where = self.nodes_per_pod, f"network.nodes_per_pod: {self.nodes_per_pod:,} nodes"
        if self.has_pods and pod >= nodes:
            yield f"{where} are all of {nodes:,}, so that the oversubscription limits nothing"
        elif pod and (rest := pod % self.leaf):
            yield f"{where} are leaves of {self.leaf} and a leaf of {rest} with empty ports"

    @property
    def has_pods(self) -> bool:
        """Whether the uplinks of pods can limit anything."""
        return self.oversubscription > 1 and not self.cabled

    @property
    def cabled(self) -> bool:
        return self.routing != "adaptive" or bool(self.down)

    @property
    def hashed(self) -> bool:
        """Whether `seed` decides which path messages take."""
        return self.routing == "ecmp"

    @property
    def uplinks(self) -> int:
        """Cables from a leaf switch to the spines."""
        below = self.leaf * (1 if self.rails else self.nics)
        return max(round(below / self.oversubscription), 1)

    def bill(self, nodes: int) -> "Bill | None":
        from sim.hardware.cluster.bill import of_tree

        pod, shape = 0 if self.cabled else self.nodes_per_pod, (self.leaf, self.nics, self.planes)
        ports = self.radix, self.oversubscription
        return of_tree(nodes, *shape, *ports, pod=pod, rails=self.rails) if self.radix else None

    @property
    def planes(self) -> int:
        """How many separate networks of switches there are, which no cable joins."""
        return 1

    def leaf_of(self, node: int, nic: int) -> int:
        """The leaf switch of a NIC; with rails, the NICs of a node have different leaf switches."""
        return node // self.leaf * self.nics + nic if self.rails else node // self.leaf

    def leaves(self, nodes: int) -> int:
        """How many leaf switches `nodes` nodes have."""
        return -(-nodes // self.leaf) * (self.nics if self.rails else 1)

    @property
    def hop(self) -> float:
        """Seconds that each switch beyond the first adds, its cable included."""
        return HOPS.get(self.kind, HOP) if self.hop_latency is None else self.hop_latency

    @property
    def leaf(self) -> int:
        """How many nodes exchange messages through a single leaf switch; 0 where unknown."""
        if not self.radix:
            return self.nodes_per_pod
        ports = self.radix // 2 // (1 if self.rails else self.nics)
        return min(ports, self.nodes_per_pod or ports)

    def tiers(self, whole: int) -> tuple[int, ...]:
        """How many nodes are below a switch of each tier but the highest, from the leaves up, in a
        network that joins `whole` nodes.

        >>> tree = PodNetwork(shape="fat-tree", kind="roce", nics=8, bandwidth=50e9, latency=2e-6,
        ...                   radix=64)
        >>> tree.tiers(256), tree.tiers(257), replace(tree, nodes_per_pod=384).tiers(1024)
        ((4,), (4, 128), (4, 128, 384))
        """
        pod = self.nodes_per_pod if self.nodes_per_pod < whole else 0
        sizes, half = [self.leaf] if self.radix else [], self.radix // 2
        while self.radix and -(-pod // sizes[-1]) > half:  # switches of a pod have uplinks, too
            sizes.append(sizes[-1] * half)
        if pod:
            sizes = [*(size for size in sizes if size < pod), pod]
        while self.radix and -(-whole // sizes[-1]) > self.radix:
            sizes.append(sizes[-1] * half)
        return tuple(sizes)

    def beyond(self, nodes: int, extent: int, whole: int) -> float:
        """A ring goes in the order of nodes, and may begin at any node. A hop of the ring passes
        two more switches for each tier that it leaves."""
        if nodes < 2:
            return 0.0
        extent = round(extent * self.stretch)
        each = extent / (nodes - 1)
        left = (min(each / size, 1.0) for size in self.tiers(whole) if extent >= size)
        return 2.0 * self.hop * sum(left)

    def above(self, source: int, target: int, whole: int) -> float:
        tiers = self.tiers(whole)
        tiers = tiers[1:] if self.cabled else tiers  # a route's own links count the first tier
        tiers = tuple(size for size in tiers if not self.has_pods or size != self.nodes_per_pod)
        return 2.0 * self.hop * sum(source // size != target // size for size in tiers)

    @property
    def pod_bandwidth(self) -> float:
        """B/s of one pod's uplinks together, each way."""
        return self.nodes_per_pod * self.nics * self.bandwidth / self.oversubscription

    @property
    def details(self) -> tuple[str, ...]:
        if self.cabled:
            return f"leaves of {self.leaf} nodes", f"{self.uplinks} uplinks each, {self.routing}"
        if not self.has_pods:
            return ()
        return (f"pods of {self.nodes_per_pod} nodes, 1:{self.oversubscription:g} above",)

    def pod_of(self, node: int) -> int:
        return node // self.nodes_per_pod if self.has_pods else 0

    def route(
        self, source: int, target: int, nics: tuple[int, int] = (0, 0), path: int = 0
    ) -> Route:
        if self.cabled:
            here, there = self.leaf_of(source, nics[0]), self.leaf_of(target, nics[1])
            if here == there:
                return ()
            cable = self._cable(here, there, (source, nics[0], target, nics[1], path))
            return ("leaf-up", here, cable), ("leaf-down", there, cable)
        first, last = self.pod_of(source), self.pod_of(target)
        return () if first == last else (("pod-up", first), ("pod-down", last))

    def _cable(self, here: int, there: int, flow: tuple[int, ...]) -> int:
        """The uplink that a connection from leaf to leaf takes. If its usual uplink is down, it
        takes another."""
        if self.routing == "adaptive":
            return 0
        _, _, node, nic, _ = flow
        target = node if self.rails else node * self.nics + nic  # a rail has one NIC of each node
        hashed = _hash((self.seed, *flow)) if self.hashed else target
        cable = hashed % self.uplinks
        dead = {cable for leaf, cable in self.down if leaf in (here, there)}
        if cable not in dead:
            return cable
        alive = [cable for cable in range(self.uplinks) if cable not in dead]
        if not alive:
            fault = f"no uplink joins leaf {here} to leaf {there}"
            raise InputError("network, down", fault, "leave one uplink up")
        return alive[hashed // self.uplinks % len(alive)]

    def links(self, nodes: int) -> Iterator[Link]:
        yield from super().links(nodes)
        if self.cabled:
            for leaf in range(self.leaves(nodes)):
                for cable in range(self.uplinks if self.routing != "adaptive" else 1):
                    yield from (("leaf-up", leaf, cable), ("leaf-down", leaf, cable))
        if self.has_pods:
            for pod in range(self.pod_of(nodes - 1) + 1):
                yield from (("pod-up", pod), ("pod-down", pod))

    def has_link(self, link: Link, nodes: int) -> bool:
        match link:
            case ("pod-up" | "pod-down", pod):
                return self.has_pods and pod <= self.pod_of(nodes - 1)
            case ("leaf-up" | "leaf-down", leaf, cable):
                cables = self.uplinks if self.routing != "adaptive" else 1
                return self.cabled and leaf < self.leaves(nodes) and cable < cables
        return super().has_link(link, nodes)

    def link_names(self, nodes: int) -> Iterator[str]:
        yield from super().link_names(nodes)
        if self.has_pods:
            yield f"pod0 to pod{self.pod_of(nodes - 1)}"
        elif self.nodes_per_pod and not self.cabled:
            yield "no uplinks of pods, which limit nothing without an oversubscription"
        if self.cabled:
            yield f"leaf0.0 to leaf{self.leaves(nodes) - 1}.{self.uplinks - 1}"

    def bandwidth_of(self, link: Link) -> float:
        if str(link[0]).startswith("leaf"):
            up = self.uplinks - sum(leaf == link[1] for leaf, _ in set(self.down))
            return self.bandwidth * (up if self.routing == "adaptive" else 1)
        above = link[0] in ("pod-up", "pod-down")
        return self.pod_bandwidth if above else super().bandwidth_of(link)

    def latency_of(self, link: Link) -> float:
        above = str(link[0]).startswith(("pod", "leaf"))
        return self.hop if above else super().latency_of(link)


def _hash(numbers: tuple[int, ...]) -> int:
    """A hash of numbers that looks random in all its bits (SplitMix64, Steele et al. 2014)."""
    word = 0
    for number in numbers:
        word = (word + number + 0x9E3779B97F4A7C15) % 2**64
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
            word = ((word ^ word >> shift) * factor) % 2**64
    return word
