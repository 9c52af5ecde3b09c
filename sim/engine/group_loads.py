"""The placement of a single group of GPUs, and its loads on links."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from sim.collectives.schedule import GroupShape
from sim.engine.cabled_links import CabledLinks
from sim.engine.group_links import GroupLinks, Spread, number_of
from sim.hardware.cluster.topology import Link, Topology


def shape_of(gpus: Sequence[int], topology: Topology) -> GroupShape:
    """The placement of a group of GPUs on nodes."""
    nodes = Counter(map(topology.node_of, gpus))
    extent, network = max(nodes) - min(nodes), topology.network
    return GroupShape(
        ranks=len(gpus),
        nodes=len(nodes),
        per_node=max(nodes.values()),
        beyond=network.beyond(len(nodes), extent, topology.whole) if network else 0.0,
    )


def group_loads(
    gpus: Sequence[int],
    topology: Topology,
    shape: GroupShape,
    kind: str = "all_reduce",
    algorithm: str = "ring",
) -> dict[Link, tuple[float, float]]:
    """The bytes on each link: for each byte through a port, and for each byte out of a node."""
    way = number_of(topology.network, kind, algorithm)
    links: GroupLinks
    members = np.array(gpus, dtype=np.int64)
    group = np.zeros_like(members)
    if topology.hierarchical:
        links, everybody = GroupLinks(topology), group == 0
        across = everybody if shape.nodes > 1 else ~everybody
        loads = links.of_members(
            group, members, across, Spread(group + 1, group + 1), everybody, everybody
        )
    else:
        links = cabled = CabledLinks(topology)
        loads = cabled.of_collectives(group, members, {kind})
    return {
        links.name(link): (port, nic)
        for link, port, nic in zip(
            loads.link.tolist(), loads.port.tolist(), loads.nic[:, way].tolist(), strict=True
        )
    }
