"""Which links a cluster has: one by one, by question, or as text for a person."""

from collections.abc import Iterator

from sim.hardware.cluster.layout import Layout
from sim.hardware.cluster.link import Link


def links(cluster: Layout) -> Iterator[Link]:
    """All links; take care not to ask a large cluster."""
    yield from _links_inside(cluster)
    network = cluster.network
    if network is None:
        return
    for node in range(cluster.nodes):
        for j in range(network.nics):
            yield from (("nic-up", node, j), ("nic-down", node, j))
    for pod in range(cluster.pods if network.has_pods else 0):
        yield from (("pod-up", pod), ("pod-down", pod))
    for a in range(network.vertices):
        yield from (("edge", a, b) for b in network.neighbours(a))


def _links_inside(cluster: Layout) -> Iterator[Link]:
    if cluster.node is None or cluster.gpus_per_node == 1:
        return
    for gpu in range(cluster.gpus):
        if cluster.node.ports:
            yield from (("port-up", gpu), ("port-down", gpu))
            continue
        first = gpu - cluster.slot_of(gpu)
        peers = cluster.node.neighbours(gpu - first, cluster.gpus_per_node)
        yield from (("nvlink", gpu, first + slot) for slot in peers)


def has_link(cluster: Layout, link: Link) -> bool:
    """True for the links of this cluster, without enumerating them."""
    fabric, network = cluster.node, cluster.network
    match link:
        case ("port-up" | "port-down", gpu):
            return fabric is not None and fabric.ports and gpu < cluster.gpus
        case ("nvlink", a, b) if fabric is not None and not fabric.ports:
            slots = cluster.gpus_per_node
            near = fabric.neighbours(cluster.slot_of(a), slots)
            together = cluster.node_of(a) == cluster.node_of(b) < cluster.nodes
            return together and cluster.slot_of(b) in near
        case ("nic-up" | "nic-down", node, j) if network is not None:
            return node < cluster.nodes and j < network.nics
        case ("pod-up" | "pod-down", pod) if network is not None:
            return network.has_pods and pod < cluster.pods
        case ("edge", a, b) if network is not None:
            return a < network.vertices and b in network.neighbours(a)
    return False


def summary(cluster: Layout) -> str:
    """The names of the links: 'gpu0.port to gpu7.port, node0.nic0 to node0.nic7'."""
    fabric, network, found = cluster.node, cluster.network, []
    if fabric is not None and fabric.ports:
        found.append(f"gpu0.port to gpu{cluster.gpus - 1}.port")
    elif fabric is not None:
        found.append(f"nvlink 0-{fabric.neighbours(0, cluster.gpus_per_node)[0]} and others")
    if network is not None and network.nics:
        found.append(f"node0.nic0 to node{cluster.nodes - 1}.nic{network.nics - 1}")
    if network is not None and network.has_pods:
        found.append(f"pod0 to pod{cluster.pods - 1}")
    if network is not None and network.vertices > 1:
        found.append(f"edge 0-{network.neighbours(0)[0]} and others")
    return ", ".join(found) or "none"
