"""Show a topology in a few lines."""

from collections.abc import Iterator
from itertools import groupby
from math import isfinite
from operator import attrgetter

from sim.config.readable import human_bytes, human_seconds, quantity_text
from sim.hardware.cluster.network import ClusterNetwork
from sim.hardware.cluster.node_fabric import NodeFabric
from sim.hardware.cluster.storage import Storage
from sim.hardware.cluster.topology import Topology
from sim.interface.document.nodes import Document, document, table
from sim.program.operations import AlgorithmRule
from sim.results.formatting import several

KINDS = {
    "infiniband": "InfiniBand",
    "infiniband-host": "InfiniBand through host memory",
    "omnipath": "Omni-Path",
    "omnipath-2021": "Omni-Path under NCCL 2.7",
    "roce": "RoCE",
    "efa": "EFA",
    "ethernet": "Ethernet",
    "ici": "ICI",
}


def view(topology: Topology) -> Document:
    """Show a heading, then a line for each part of the cluster.

    >>> from sim.hardware.cluster.topology import load
    >>> from sim.interface.document.terminal import text
    >>> print(text(view(load("a100-vtrain"))))
    a100-vtrain: 512 x A100 80GB SXM, 64 nodes of 8
      device   312 TFLOP/s fp16, 79.2 GiB at 2.04 TB/s, 400 W
      node     NVSwitch, 300 GB/s per device each way, 600 ns
      network  fat-tree, InfiniBand, 4 NICs a node of 25.0 GB/s each way, 1.00 us
    """
    parts = [("device", device_text(topology))]
    if topology.node is not None:
        parts.append(("node", node_text(topology.node)))
    if topology.network is not None:
        parts.append(("network", network_text(topology.network)))
    if topology.storage is not None:
        parts.append(("storage", storage_text(topology.storage)))
    parts += [("measured", text) for text in _measured(topology.network)]
    if topology.degraded:
        sick = ", ".join(f"{link.link} {link.factor:g} times slower" for link in topology.degraded)
        parts.append(("degraded", sick))
    return document(heading(topology), table(parts))


def _measured(network: ClusterNetwork | None) -> Iterator[str]:
    """Yield for each measured collective its numbers of devices and its lowest bus bandwidth."""
    measured = network.measured if network else ()
    known = sorted(measured, key=attrgetter("collective", "gpus"))
    for kind, group in groupby(known, attrgetter("collective")):
        over, reached = zip(*((row.gpus, row.bus_bandwidth) for row in group), strict=True)
        devices = " to ".join(map(str, sorted({over[0], over[-1]})))
        yield f"{kind} over {devices} devices, {rate(min(reached))} of bus bandwidth at least"


def heading(topology: Topology) -> str:
    """Return the name, the number of devices and the number of nodes."""
    count = f"{topology.gpus:,} x {topology.device.name}"
    if topology.nodes == 1:
        nodes = "one node"
        if topology.gpus < topology.gpus_per_node:
            nodes += f" of {topology.gpus_per_node}, partly used"
    else:
        per_node = topology.gpus_per_node
        nodes = f"{topology.nodes:,} nodes of {per_node}" if per_node > 1 else "one to a node"
    return f"{topology.name}: {count}, {nodes}"


def device_text(topology: Topology) -> str:
    """Return the peak rate, memory, memory bandwidth and power of a device."""
    device = topology.device
    half = "fp16" if "fp16" in device.peak.known else "bf16"
    return (
        f"{device.peak_rate(half) / 1e12:,.0f} TFLOP/s {half}, {human_bytes(device.memory)} at "
        f"{rate(device.memory_bandwidth)}, {device.power:.0f} W"
    )


def node_text(node: NodeFabric) -> str:
    """Return the fabric inside a node and its line rates."""
    name = node.title + (" with SHARP" if node.reduces else "")
    words = [name, f"{rate(node.bandwidth)} per device each way", human_seconds(node.latency)]
    return ", ".join([*words, *map(rule_text, node.algorithm)])


def network_text(network: ClusterNetwork) -> str:
    """Return the shape, kind and line rates of a network, and details of its shape."""
    words = [network.title, KINDS[network.kind]]
    if network.nics:
        plural = "NIC" if network.nics == 1 else "NICs"
        words.append(f"{network.nics} {plural} a node of {rate(network.bandwidth)} each way")
    else:
        words.append(f"cables of {rate(network.bandwidth)} each way")
    words += [human_seconds(network.latency), *network.details]
    return ", ".join([*words, *map(rule_text, network.algorithm)])


_STORES = {
    "nvme": "drives of each node",
    "parallel": "parallel file system",
    "object": "object store",
}


def storage_text(storage: Storage) -> str:
    """Return the kind and bandwidths of a storage, the nodes that share it, and the network by
    which they reach it."""
    words = [_STORES[storage.kind]]
    if storage.remote:
        read, write = rate(storage.read), rate(storage.write)
        users = several(storage.nodes, "node") if storage.nodes else "all nodes"
        words.append(f"{read} read and {write} written for {users}")
        separate = f"a network of its own, {rate(storage.bandwidth)} a node"
        words.append(separate if storage.bandwidth else "over the NICs")
    if storage.operations:
        words.append(f"{storage.operations:,.0f} operations/s")
    return ", ".join([*words, human_seconds(storage.latency)])


def rule_text(rule: AlgorithmRule) -> str:
    """Say which collectives use which algorithm.

    >>> rule_text(AlgorithmRule(use=("auto", "tree"), kinds=("all_reduce",), up_to=1e6))
    'all_reduce up to 1 MB by auto or tree'
    """
    size = f" up to {quantity_text(rule.up_to / 1e6, 'MB')}" if isfinite(rule.up_to) else ""
    return f"{' and '.join(rule.kinds) or 'collectives'}{size} by {' or '.join(rule.use)}"


def rate(bytes_per_second: float) -> str:
    """Return a bandwidth with three significant digits in decimal units, as in data sheets.

    >>> rate(25e9), rate(21.4e12), rate(2.039e12)
    ('25.0 GB/s', '21.4 TB/s', '2.04 TB/s')
    """
    scale, unit = (1e12, "TB/s") if bytes_per_second >= 1e12 else (1e9, "GB/s")
    value = bytes_per_second / scale
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:,.{digits}f} {unit}"
