"""The links that groups load on networks of cables, where the routes of all hops are summed."""

from collections.abc import Collection, Iterable

import numpy as np

from sim.engine.cable_hops import hops
from sim.engine.group_links import (
    EVERY,
    KINDS,
    ROOM,
    Flags,
    GroupLinks,
    Hop,
    Indices,
    Loads,
    summed,
)
from sim.hardware.cluster.topology import Link, Topology


class CabledLinks(GroupLinks):
    """Cables are one further kind of link; their places are numbers in the order of first use."""

    def __init__(self, topology: Topology, *, copies: bool = False) -> None:
        super().__init__(topology, copies=copies)
        self._cables: dict[Link, int] = {}
        self._named: list[Link] = []

    def name(self, number: int) -> Link:
        kind, place = divmod(number, ROOM)
        return self._named[place] if kind == len(KINDS) else super().name(number)

    def of_messages(self, groups: Indices, gpus: Indices, sends: Flags) -> Loads:
        """The loads of groups that have two members, a sender and a receiver."""
        targets = dict(zip(groups[~sends].tolist(), gpus[~sends].tolist(), strict=True))
        sources = zip(groups[sends].tolist(), gpus[sends].tolist(), strict=True)
        return self.of_routes(
            (group, [(source, targets[group], EVERY, 1.0)]) for group, source in sources
        )

    def of_collectives(self, groups: Indices, gpus: Indices, kinds: Collection[str]) -> Loads:
        """The loads of groups that call collectives of some kinds."""
        by_group: dict[int, list[int]] = {}
        for group, gpu in zip(groups.tolist(), gpus.tolist(), strict=True):
            by_group.setdefault(group, []).append(gpu)
        return self.of_routes(
            (group, hops(members, self.topology, kinds)) for group, members in by_group.items()
        )

    def of_routes(self, routes: Iterable[tuple[int, Iterable[Hop]]]) -> Loads:
        """The loads of groups whose members send to each other by these hops, route by route."""
        paths = self.topology.network.paths if self.topology.network else 1
        rows = [
            (group, self._number(link), local * share / paths, (not local) * share / paths, way)
            for group, hop in routes
            for source, target, way, share in hop
            for local in [source // self.slots == target // self.slots]
            for path in range(paths)
            for link in self.topology.route(source, target, path)
        ]
        if not rows:
            return self.nothing
        group, link, port, nic, way = (np.array(column) for column in zip(*rows, strict=True))
        taken = (way[:, None] == np.arange(len(self.ways))) | (way[:, None] == EVERY)
        return summed([Loads(group, link, port, nic[:, None] * taken)])

    def _number(self, link: Link) -> int:
        kind, *place = link
        if kind in KINDS:
            at = place[0] * max(self.nics, 1) + place[1] if kind.startswith("nic") else place[0]
            return KINDS.index(kind) * ROOM + at
        if link not in self._cables:
            self._cables[link] = len(self._named)
            self._named.append(link)
        return len(KINDS) * ROOM + self._cables[link]
