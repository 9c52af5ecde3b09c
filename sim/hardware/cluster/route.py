"""The links that a message passes from one device to another."""

from sim.hardware.cluster.link import Route, path_links
from sim.hardware.cluster.network import ClusterNetwork
from sim.hardware.cluster.placement import Placement


def route(cluster: Placement, source: int, target: int) -> Route:
    """The links from GPU `source` to GPU `target`: up and down in trees, dimension-ordered on
    tori, minimal on dragonflies, else a shortest path. Deterministic; () to itself.
    """
    if source == target:
        return ()
    if cluster.node_of(source) == cluster.node_of(target):
        return inside(cluster, source, target)
    if cluster.network is None:
        raise ValueError(f"{cluster.name} has no network from GPU {source} to GPU {target}")
    relay = _relay(cluster, cluster.network, source, target)
    through_ports = cluster.node is not None and cluster.node.network_through_ports
    return (
        *(inside(cluster, source, relay) if relay != source else ()),
        *([("port-up", source)] if through_ports else ()),
        *_between(cluster, cluster.network, relay, target),
        *([("port-down", target)] if through_ports else ()),
    )


def inside(cluster: Placement, source: int, target: int) -> Route:
    """The links between two GPUs of one node."""
    if cluster.node is None or cluster.node.ports:
        return (("port-up", source), ("port-down", target))
    first, slots = source - cluster.slot_of(source), cluster.gpus_per_node
    path = cluster.node.path(source - first, target - first, slots)
    return path_links("nvlink", [first + slot for slot in path])


def _relay(cluster: Placement, network: ClusterNetwork, source: int, target: int) -> int:
    """The GPU of the source's node that hands the message to the network (NCCL 2.12's PXN)."""
    if not network.rails or cluster.node is None or not cluster.node.relays:
        return source
    rail = cluster.nic_of(target)[1]
    if cluster.nic_of(source)[1] == rail:
        return source
    first = source - cluster.slot_of(source)
    peers = range(first, first + cluster.gpus_per_node)
    return next(gpu for gpu in peers if cluster.nic_of(gpu)[1] == rail)


def _between(cluster: Placement, network: ClusterNetwork, source: int, target: int) -> Route:
    if not network.nics:
        return network.route(cluster.node_of(source), cluster.node_of(target))
    (here, up), (there, down) = cluster.nic_of(source), cluster.nic_of(target)
    above = network.route(here, there, (up, down))
    return (("nic-up", here, up), *above, ("nic-down", there, down))
