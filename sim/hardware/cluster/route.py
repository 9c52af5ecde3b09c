"""The links that a message passes from one device to another."""

from collections.abc import Sequence
from itertools import pairwise

from sim.hardware.cluster.layout import Layout
from sim.hardware.cluster.link import Link
from sim.hardware.cluster.network import Network

Route = tuple[Link, ...]


def route(cluster: Layout, source: int, target: int) -> Route:
    """The way from GPU `source` to GPU `target`: up and down in trees, dimension-ordered on tori,
    minimal on dragonflies, else a shortest path. Deterministic; () to itself.
    """
    if source == target:
        return ()
    if cluster.node_of(source) == cluster.node_of(target):
        return inside(cluster, source, target)
    if cluster.network is None:
        raise ValueError(f"{cluster.name} has no network from GPU {source} to GPU {target}")
    relay = _relay(cluster, cluster.network, source, target)
    behind_port = cluster.node is not None and cluster.node.fabric == "pcie"
    return (
        *(inside(cluster, source, relay) if relay != source else ()),
        *([("port-up", source)] if behind_port else ()),
        *_between(cluster, cluster.network, relay, target),
        *([("port-down", target)] if behind_port else ()),
    )


def inside(cluster: Layout, source: int, target: int) -> Route:
    """The way between two GPUs of one node."""
    if cluster.node is None or cluster.node.ports:
        return (("port-up", source), ("port-down", target))
    first, slots = source - cluster.slot_of(source), cluster.gpus_per_node
    path = cluster.node.path(source - first, target - first, slots)
    return _cables("nvlink", [first + slot for slot in path])


def _relay(cluster: Layout, network: Network, source: int, target: int) -> int:
    """The GPU of the source's node that hands the message to the network (NCCL 2.12's PXN)."""
    if network.shape != "rail-optimised" or not (
        cluster.node and cluster.node.fabric == "nvswitch"
    ):
        return source
    rail = cluster.nic_of(target)[1]
    if cluster.nic_of(source)[1] == rail:
        return source
    first = source - cluster.slot_of(source)
    peers = range(first, first + cluster.gpus_per_node)
    return next(gpu for gpu in peers if cluster.nic_of(gpu)[1] == rail)


def _between(cluster: Layout, network: Network, source: int, target: int) -> Route:
    a, b = cluster.node_of(source), cluster.node_of(target)
    above: Route = ()
    if network.cabled:
        above = _cables("edge", network.path(network.vertex_of(a), network.vertex_of(b)))
    elif cluster.pod_of(a) != cluster.pod_of(b):
        above = (("pod-up", cluster.pod_of(a)), ("pod-down", cluster.pod_of(b)))
    if not network.nics:
        return above
    return (("nic-up", *cluster.nic_of(source)), *above, ("nic-down", *cluster.nic_of(target)))


def _cables(kind: str, vertices: Sequence[int]) -> Route:
    return tuple((kind, a, b) for a, b in pairwise(vertices))
