"""How does a Chakra execution trace become a rank?

A node waits for the nodes that it names. Computations of a device run in a row, and so do the
collectives of a group and the messages of a pair. A trace has the times of computations, but
usually only the sizes of communications: a user must name a network for them.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from sim.config.errors import InputError
from sim.jobs.traces import chakra_format as chakra
from sim.jobs.traces.chakra_format import COLLECTIVES, Node
from sim.jobs.traces.rank_trace import Collective, Kernel, RankTrace

SUFFIX = ".et"
GROUPS = "groups.json"  # a file beside the traces, with the members of process groups

_KINDS = {number: kind for kind, number in COLLECTIVES.items()}


def read(path: Path, ranks: int, removed: str = "") -> RankTrace:
    """The trace of one of `ranks` ranks; a collective without a group is among all of these ranks.
    Operations whose name contains `removed` take no time. Raises `InputError`."""
    beside = path.parent / GROUPS
    groups = chakra.read_groups(beside) if beside.is_file() else {}
    nodes = _ordered(chakra.read(path), path)
    place = {node.number: number for number, node in enumerate(nodes)}
    rank = _number(path)
    reader = _Reader(path, rank, groups, ranks)
    kernels = tuple(
        Kernel(
            name=node.name,
            stream=reader.stream(node),
            seconds=0.0 if gone else 1e-6 * node.microseconds,
            after=tuple(place[number] for number in node.after if number in place),
            collective=None if gone else reader.collective(node),
            on_host=_on_host(node),
        )
        for node in nodes
        for gone in [bool(removed) and removed in node.name]
    )
    return RankTrace(rank=rank, world=ranks, kernels=kernels, host=(), steps=1, ends=None)


def _number(path: Path) -> int:
    """The rank in a file's name, "rank.12.et"."""
    found = re.search(r"\.(\d+)\.et$", path.name)
    if found is None:
        raise InputError(str(path), "has no rank in its name", "rename it to NAME.RANK.et")
    return int(found[1])


def _ordered(nodes: Sequence[Node], path: Path) -> list[Node]:
    """Sort nodes so that each follows all nodes that it waits for; keep such an order."""
    by_number = {node.number: node for node in nodes}
    if len(by_number) < len(nodes):
        raise InputError(str(path), "has two operations of the same number", "rewrite the trace")
    seen: set[int] = set()
    for node in nodes:
        if any(number in by_number and number not in seen for number in node.after):
            break
        seen.add(node.number)
    else:
        return list(nodes)
    graph = {node.number: [n for n in node.after if n in by_number] for node in nodes}
    try:
        return [by_number[number] for number in TopologicalSorter(graph).static_order()]
    except CycleError:
        raise InputError(
            str(path), "has operations that wait in a circle", "rewrite the trace"
        ) from None


def _on_host(node: Node) -> bool:
    return node.kind == "compute" and node.attributes.get("is_cpu_op") is True


class _Reader:
    """Streams and collectives of one rank."""

    def __init__(
        self, path: Path, rank: int, groups: Mapping[str, Sequence[int]], ranks: int
    ) -> None:
        self.path, self.rank, self.groups, self.ranks = path, rank, groups, ranks
        self.seen: Counter[tuple[str, str]] = Counter()

    def stream(self, node: Node) -> str:
        if node.kind == "collective":
            return f"group {node.attributes.get('pg_name', '')}".strip()
        if node.kind in ("send", "receive"):
            return f"{node.kind} {self._of(node, 'comm_src')} {self._of(node, 'comm_dst')}"
        if node.kind != "compute":
            return "copies"
        return "processors" if _on_host(node) else "device"

    def collective(self, node: Node) -> Collective | None:
        if node.kind in ("send", "receive"):
            pair = (self._of(node, "comm_src"), self._of(node, "comm_dst"))
            tag = node.attributes.get("comm_tag", 0)
            return self._sent(f"{pair} {tag}", "point_to_point", node, pair)
        if node.kind != "collective":
            return None
        kind = _KINDS.get(self._of(node, "comm_type"))
        if kind is None:
            fault = f"{node.name} is a collective of an unknown kind"
            raise InputError(str(self.path), fault, f"the known kinds are {', '.join(COLLECTIVES)}")
        group = str(node.attributes.get("pg_name", ""))
        if group and group not in self.groups:
            fault = f"{node.name} runs in group {group!r}, whose members are not known"
            remedy = f'write {{"{group}": [RANKS]}} into {GROUPS} beside the traces'
            raise InputError(str(self.path), fault, remedy)
        members = tuple(self.groups[group]) if group else tuple(range(self.ranks))
        if group and self.rank not in members:
            fault = f"{node.name} runs in group {group!r}, whose members lack rank {self.rank}"
            raise InputError(str(self.path), fault, f"correct {GROUPS}")
        return self._sent(group, kind, node, members)

    def _sent(self, group: str, kind: str, node: Node, members: tuple[int, ...]) -> Collective:
        self.seen[group, kind] += 1
        size = self._of(node, "comm_size")
        return Collective(
            key=(group, kind, self.seen[group, kind]),
            kind=kind,
            bytes=float(size * (len(members) if kind == "all_gather" else 1)),
            ranks=len(members),
            members=members,
            beside=float(node.attributes.get(chakra.BESIDE, 0.0)),
        )

    def _of(self, node: Node, name: str) -> int:
        value = node.attributes.get(name)
        if not isinstance(value, int) or value < 0:
            raise InputError(str(self.path), f"{node.name} has no {name}", "rewrite the trace")
        return value
