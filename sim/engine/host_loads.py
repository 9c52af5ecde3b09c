"""The loads that copies to hosts put on links: PCIe, memory, drives and the way to storage."""

from collections.abc import Sequence

import numpy as np

from sim.engine.group_links import GroupLinks, Indices, Loads, summed
from sim.program.operations import HostLink


def of_hosts(
    links: GroupLinks,
    groups: Indices,
    gpus: Indices,
    path: Sequence[HostLink],
    loads: Sequence[float],
    pods: Indices,
) -> Loads:
    """The loads of copies to hosts. Each byte of a copy puts `loads` bytes on the links of
    `path`. If a device reaches its host through a port of its node's fabric, its copies load the
    port, too. Each rank of `groups` stands for equal ranks in a number of `pods`."""
    parts = []
    for kind, load in zip(path, loads, strict=True):
        size = load / pods if kind.startswith("pod") else load
        parts.append(links.part(kind, groups, places(links, kind, gpus), size, 0.0))
        if kind.startswith("pcie") and links.behind_port:
            parts.append(links.part(f"port-{kind[5:]}", groups, gpus, load, 0.0))
    return summed(parts)


def places(links: GroupLinks, kind: str, gpus: Indices) -> Indices:
    """The place of each GPU's link among the links of a kind."""
    node = gpus // links.slots
    match kind.partition("-")[0]:
        case "workers":
            return gpus
        case "pcie":
            return links.pcie(gpus)
        case "nic":
            return node * max(links.nics, 1) + links.nic_of_slot[gpus % links.slots]
        case "pod":
            return np.array([links.topology.pod_of(n) for n in node.tolist()], dtype=np.int64)
        case "storage" | "operations" if storage := links.topology.storage:
            return np.array([storage.place_of(n) for n in node.tolist()], dtype=np.int64)
    return node
