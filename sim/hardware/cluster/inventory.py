"""The links of a cluster: all links, whether a certain link exists, and a summary as text.

A job that needs more devices than a cluster has is refused; the message names possible numbers.
"""

from collections.abc import Iterator

from sim.config.errors import InputError
from sim.hardware.cluster.host import HOST_LINKS, STORAGE_LINKS
from sim.hardware.cluster.link_names import FORMS, links_named
from sim.hardware.cluster.network import Link, Route
from sim.hardware.cluster.placement import Placement


def parse_link(cluster: Placement, text: str) -> Route:
    """The links that a name stands for. Raises `InputError` if the cluster has no such link."""
    links, where = links_named(text), f"link {text!r}"
    if not links:
        raise InputError(where, "is not the name of a link", f"write it like {FORMS}")
    if not all(has_link(cluster, link) for link in links):
        raise InputError(where, f"{cluster.name} has no such link", f"it has {summary(cluster)}")
    return links


def links(cluster: Placement) -> Iterator[Link]:
    """Yield all links of a cluster, which takes long on a large cluster."""
    yield from _links_inside(cluster)
    yield from _links_to_hosts(cluster)
    yield from _links_of_storage(cluster)
    if cluster.network is not None:
        yield from cluster.network.links(cluster.nodes)


def _links_inside(cluster: Placement) -> Iterator[Link]:
    if cluster.node is None or cluster.gpus_per_node == 1:
        return
    for gpu in range(cluster.gpus):
        if cluster.node.ports:
            yield from (("port-up", gpu), ("port-down", gpu))
            continue
        slot = cluster.slot_of(gpu)
        peers = cluster.node.neighbours(slot, cluster.gpus_per_node)
        yield from (("nvlink", gpu, gpu - slot + peer) for peer in peers)


def _links_to_hosts(cluster: Placement) -> Iterator[Link]:
    if cluster.host is None:
        return
    kinds = [kind for kind in HOST_LINKS[2:] if cluster.host.bandwidth_of(kind)]
    for node in range(cluster.nodes):
        end = min((node + 1) * cluster.gpus_per_node, cluster.gpus)
        used = range(node * cluster.gpus_per_node, end)
        for number in dict.fromkeys(cluster.host_link_of(gpu)[1] for gpu in used):
            yield from (("pcie-up", node, number), ("pcie-down", node, number))
        yield from ((kind, node) for kind in kinds)


def _links_of_storage(cluster: Placement) -> Iterator[Link]:
    storage = cluster.storage
    if storage is None:
        return
    used = [kind for kind in STORAGE_LINKS if storage.bandwidth_of(kind)]
    for kind in used:
        of_nodes = map(storage.place_of, range(cluster.nodes))
        places = range(cluster.nodes) if kind.startswith("client") else dict.fromkeys(of_nodes)
        yield from ((kind, place) for place in places)


def has_link(cluster: Placement, link: Link) -> bool:
    """Whether the cluster has a link, without enumerating all links."""
    fabric, network = cluster.node, cluster.network
    match link:
        case ("port-up" | "port-down", gpu):
            return fabric is not None and fabric.ports and gpu < cluster.gpus
        case ("nvlink", a, b):
            if fabric is None or fabric.ports:
                return False
            peers = fabric.neighbours(cluster.slot_of(a), cluster.gpus_per_node)
            together = cluster.node_of(a) == cluster.node_of(b) < cluster.nodes
            return together and cluster.slot_of(b) in peers
    if link[0] in HOST_LINKS:
        return link in _links_to_hosts(cluster)
    if link[0] in STORAGE_LINKS:
        return link in _links_of_storage(cluster)
    return network is not None and network.has_link(link, cluster.nodes)


def summary(cluster: Placement) -> str:
    """The names of the links: 'gpu0.port to gpu7.port, node0.nic0 to node0.nic7'."""
    fabric, network, names = cluster.node, cluster.network, []
    if fabric is not None and fabric.ports:
        names.append(f"gpu0.port to gpu{cluster.gpus - 1}.port")
    elif fabric is not None:
        names.append(f"nvlink 0-{fabric.neighbours(0, cluster.gpus_per_node)[0]} and others")
    if network is not None:
        names += network.link_names(cluster.nodes)
    return ", ".join(names) or "none"


def too_few(cluster: Placement, gpus: int, whole: int) -> InputError:
    """The refusal of a job with more GPUs than the cluster has; `whole` GPUs would be enough."""
    fault = f"the job needs {gpus:,} GPUs, but the cluster has {cluster.size:,}"
    like = f'a topology with like = "{cluster.name}" and gpus = {whole}'
    remedy = f"use at most {cluster.size}, set topology.gpus = {whole}, or write {like}"
    return InputError(f"topology {cluster.name}", fault, remedy)


def crowded(cluster: Placement, gpus: int, each: int) -> InputError:
    """The refusal of a job that needs more nodes than exist, with `each` of its GPUs in a node."""
    slots, nodes = cluster.slots or cluster.gpus_per_node, -(-gpus // each)
    there = cluster.size // slots
    fault = (
        f"{gpus:,} GPUs in whole trays take {each} GPUs of each of {nodes} nodes, but there are "
        f"{there} nodes of {slots}, which give {there * each:,} GPUs at {each} each"
    )
    remedy = f"set topology.gpus = {nodes * slots}, or use {gpus // slots * slots:,} GPUs"
    return InputError(f"topology {cluster.name}", fault, remedy)
