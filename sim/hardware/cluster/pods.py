"""Networks of switches in pods, whose uplinks may carry less than the NICs below them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge

from sim.config.units import Seconds
from sim.hardware.cluster.link import Link, Route
from sim.hardware.cluster.switched import SwitchedNetwork


@dataclass(frozen=True, kw_only=True)
class PodNetwork(SwitchedNetwork):
    """Pods of `nodes_per_pod` whose uplinks carry 1/`oversubscription` of their NICs; with an
    oversubscription of 1 they never limit anything. `hop_latency` is added by each uplink."""

    nodes_per_pod: int = 0
    oversubscription: Annotated[float, Ge(1)] = 1.0
    hop_latency: Seconds = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.has_pods and not self.nodes_per_pod:
            raise ValueError("oversubscription needs pods; add nodes_per_pod = ...")

    @property
    def has_pods(self) -> bool:
        """Whether the uplinks of pods can limit anything."""
        return self.oversubscription > 1

    @property
    def pod_bandwidth(self) -> float:
        """B/s of one pod's uplinks together, each way."""
        return self.nodes_per_pod * self.nics * self.bandwidth / self.oversubscription

    @property
    def details(self) -> tuple[str, ...]:
        if not self.has_pods:
            return ()
        return (f"pods of {self.nodes_per_pod} nodes, 1:{self.oversubscription:g} above",)

    def pod_of(self, node: int) -> int:
        return node // self.nodes_per_pod if self.has_pods else 0

    def route(self, source: int, target: int, nics: tuple[int, int] = (0, 0)) -> Route:
        first, last = self.pod_of(source), self.pod_of(target)
        return () if first == last else (("pod-up", first), ("pod-down", last))

    def links(self, nodes: int) -> Iterator[Link]:
        yield from super().links(nodes)
        if self.has_pods:
            for pod in range(self.pod_of(nodes - 1) + 1):
                yield from (("pod-up", pod), ("pod-down", pod))

    def has_link(self, link: Link, nodes: int) -> bool:
        match link:
            case ("pod-up" | "pod-down", pod):
                return self.has_pods and pod <= self.pod_of(nodes - 1)
        return super().has_link(link, nodes)

    def link_names(self, nodes: int) -> Iterator[str]:
        yield from super().link_names(nodes)
        if self.has_pods:
            yield f"pod0 to pod{self.pod_of(nodes - 1)}"

    def bandwidth_of(self, link: Link) -> float:
        above = link[0] in ("pod-up", "pod-down")
        return self.pod_bandwidth if above else super().bandwidth_of(link)

    def latency_of(self, link: Link) -> float:
        above = link[0] in ("pod-up", "pod-down")
        return self.hop_latency if above else super().latency_of(link)
