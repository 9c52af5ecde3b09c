"""Links and their names: what `[[straggler]]`, traces and pictures call a direction of a cable."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

Link = tuple[str, int] | tuple[str, int, int]
"""One direction of a connection.

("port-up" | "port-down", gpu): from the GPU into its node's fabric, and back.
("nvlink", a, b): from GPU a to GPU b, in a node without a switch.
("nic-up" | "nic-down", node, j): NIC j of the node, to and from the network.
("pcie-up" | "pcie-down", node, j): PCIe link j of the node, from its devices to the host, and back.
("memory", node): the host's memory, reads and writes together.
("nvme-up" | "nvme-down", node): the node's drives, written and read.
("pod-up" | "pod-down", pod): a pod's uplinks together, where they are oversubscribed.
("edge", a, b): a cable of a torus, dragonfly, mesh or ring, from vertex a to vertex b.
"""

Route = tuple[Link, ...]

_PATTERNS = {
    "port": re.compile(r"gpu(\d+)\.port(?:\.(up|down))?"),
    "nic": re.compile(r"node(\d+)\.nic(\d+)(?:\.(up|down))?"),
    "pcie": re.compile(r"node(\d+)\.pcie(\d+)(?:\.(up|down))?"),
    "memory": re.compile(r"node(\d+)\.memory"),
    "nvme": re.compile(r"node(\d+)\.nvme(?:\.(up|down))?"),
    "pod": re.compile(r"pod(\d+)(?:\.(up|down))?"),
    "edge": re.compile(r"edge (\d+)(-|>)(\d+)"),
    "nvlink": re.compile(r"nvlink (\d+)(-|>)(\d+)"),
}
FORMS = "'node3.nic0', 'gpu5.port', 'pod0', 'edge 0-1' or 'nvlink 0-1'"


def link_name(link: Link) -> str:
    """The name of one direction, as `links_named` reads it.

    >>> link_name(("nic-up", 3, 0)), link_name(("edge", 0, 1))
    ('node3.nic0.up', 'edge 0>1')
    """
    match link:
        case ("edge" | "nvlink" as kind, a, b):
            return f"{kind} {a}>{b}"
        case (kind, node, j):
            name, way = str(kind).split("-")
            return f"node{node}.{name}{j}.{way}"
        case ("memory", node):
            return f"node{node}.memory"
        case ("nvme-up" | "nvme-down" as kind, node):
            return f"node{node}.nvme.{kind[5:]}"
        case ("port-up" | "port-down" as kind, gpu):
            return f"gpu{gpu}.port.{kind[5:]}"
        case (kind, pod):
            return f"pod{pod}.{kind[4:]}"
    raise ValueError(f"{link!r} is not a link")


def path_links(kind: str, places: Sequence[int]) -> Route:
    """The links from place to place along a path.

    >>> path_links("edge", (0, 4, 5))
    (('edge', 0, 4), ('edge', 4, 5))
    """
    return tuple((kind, a, b) for a, b in pairwise(places))


def links_named(text: str) -> tuple[Link, ...]:
    """The directions that a text means, whether or not a topology has them; () if none.

    >>> links_named("node3.nic0")
    (('nic-up', 3, 0), ('nic-down', 3, 0))
    >>> links_named("edge 1>0")
    (('edge', 1, 0),)
    """
    for kind, pattern in _PATTERNS.items():
        if match := pattern.fullmatch(text.strip()):
            return tuple(_directions(kind, match.groups()))
    return ()


def _directions(kind: str, parts: Sequence[str | None]) -> Iterator[Link]:
    if kind in ("edge", "nvlink"):
        a, arrow, b = int(parts[0] or 0), parts[1], int(parts[2] or 0)
        yield (kind, a, b)
        if arrow == "-":
            yield (kind, b, a)
        return
    if kind == "memory":
        yield (kind, int(parts[0] or 0))
        return
    numbers = [int(part) for part in parts[:-1] if part is not None]
    for direction in (parts[-1],) if parts[-1] else ("up", "down"):
        if len(numbers) == 2:
            yield (f"{kind}-{direction}", numbers[0], numbers[1])
        else:
            yield (f"{kind}-{direction}", numbers[0])
