"""Jobs that meet on links: which jobs, on which links, and each job's folded program.

Each job is folded by itself: ranks, groups and links that behave alike become a class. Two links of
a job are alike only if they carry equally many transfers of equal classes of every job. So the
folded jobs together are exact (`sim.engine.fold`), and a folded job does not grow with the number
of other jobs.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from math import inf
from typing import Any

from sim.config.dataclass import dataclass
from sim.engine.communicators import communicators, scopes_of
from sim.engine.fold import Folding
from sim.engine.folded import (
    CommunicateStep,
    FoldedProgram,
    Item,
    RoleProgram,
    Step,
    Traffic,
)
from sim.engine.machine import Machine
from sim.engine.replicas import representatives
from sim.hardware.cluster.link_names import link_name
from sim.hardware.cluster.network import Link
from sim.jobs.multi_job.placed import STORES, Place
from sim.program.program import Program


@dataclass(frozen=True, eq=False)
class Guest:
    """A job at its place: the program that it repeats (None: its work does not repeat), and the
    machine as the job sees it. `work` takes a machine, and returns how long a unit of the job's
    work takes there (s), and the bytes of this unit by link. `shares_nodes` says that the job has
    work beside its steps on its nodes. Guests that are placed alike share results in `known`."""

    name: str
    place: Place
    machine: Machine
    program: Program | None
    work: Callable[[Machine], tuple[float, Mapping[Link, float]]]
    shares_nodes: bool = False
    known: dict[Hashable, Any] = field(default_factory=dict)

    @property
    def repeated(self) -> Program:
        """The program of a guest that repeats its work."""
        assert self.program is not None, "guests without programs are not played together"
        return self.program

    @cached_property
    def loaded(self) -> dict[Link, float]:
        """The links of the cluster that both this job and another job could load, each with the
        most B/s that this job can send there. For a pod's uplinks, this is the bandwidth of the
        NICs of the job's nodes in the pod."""
        topology, network = self.machine.topology, self.machine.topology.network
        if topology.hierarchical:
            nodes = Counter(map(topology.pod_of, range(topology.nodes)))
            uplinks = ("pod-up", "pod-down") if network and len(nodes) > 1 else ()
            nics = network.nics * network.bandwidth * network.efficiency if network else 0.0
            most = {(kind, pod): count * nics for kind in uplinks for pod, count in nodes.items()}
            return most | dict.fromkeys([*self._of_nodes(), *self._of_storage()], inf)
        if self.program is None:
            return {self.place.link(link): inf for link in self.work(self.machine)[1]}
        ranks = representatives(self.repeated.mesh, self.machine, unfold=True)
        groups = communicators(scopes_of(self.repeated), ranks, topology)
        return {self.place.link(link): inf for link in groups.links}

    def _of_storage(self) -> Iterator[Link]:
        """Yield the links of the remote stores that the job reads or writes, and the uplinks on the
        way."""
        topology, storage = self.machine.topology, self.machine.topology.storage
        if self.program is None or storage is None or not storage.remote:
            return
        used = {kind for scope in scopes_of(self.program) for kind in scope.path}
        for kind in used.intersection((*STORES, "pod-up", "pod-down")):
            place_of = storage.place_of if kind in STORES else topology.pod_of
            yield from ((kind, place_of(node)) for node in range(topology.nodes))

    def _of_nodes(self) -> set[Link]:
        """The links of the job's hosts and NICs, if other jobs or work beside steps may load
        them."""
        topology = self.machine.topology
        full = len(self.place.slots) == self.place.cluster.gpus_per_node
        if full and not self.shares_nodes:
            return set()
        return {
            self.place.link(link)
            for link in topology.links
            if not link[0].startswith(("port", "pod", "edge", "storage", "operations"))
        }


def meeting(guests: Sequence[Guest]) -> list[tuple[int, ...]]:
    """Groups of guests, by their numbers, that meet on links, directly or through other guests.

    Guests that load a link together are connected; groups are the connected components.
    """
    leader = list(range(len(guests)))

    def lead(number: int) -> int:
        while leader[number] != number:
            leader[number] = number = leader[leader[number]]
        return number

    for users in users_of(guests).values():
        for other in users[1:]:
            leader[lead(other)] = lead(users[0])
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for number in range(len(guests)):
        groups[lead(number)].append(number)
    return [tuple(group) for group in groups.values()]


def users_of(guests: Sequence[Guest]) -> dict[Link, list[int]]:
    """The links that several guests load and could together fill, with the guests' numbers."""
    users: defaultdict[Link, list[int]] = defaultdict(list)
    for number, guest in enumerate(guests):
        for link in guest.loaded:
            users[link].append(number)
    return {
        link: by
        for link, by in users.items()
        if len(by) > 1
        and sum(guests[n].loaded[link] for n in by) > guests[0].place.cluster.capacity(link)
    }


@dataclass(frozen=True, slots=True, eq=False)
class Together:
    """Guests that meet: a folded program for each guest. A link is a number: its place in
    `capacity` (B/s) and `names`. The first `shared` links carry traffic of several guests."""

    programs: tuple[FoldedProgram, ...]
    capacity: tuple[float, ...]
    names: tuple[str, ...]
    shared: int


def together(guests: Sequence[Guest]) -> Together:
    """Fold the programs of guests on common links. Classes of links are divided until all guests
    agree which links are alike."""
    users = {link: tuple(by) for link, by in users_of(guests).items()}
    marks: Mapping[Link, Hashable] = users
    while True:
        foldings = [_folding(number, guest, users, marks) for number, guest in enumerate(guests)]
        classes = [dict(_classes(f, g)) for f, g in zip(foldings, guests, strict=True)]
        finer = {
            link: tuple((number, classes[number].get(link)) for number in by)
            for link, by in users.items()
        }
        if len(set(finer.values())) == len(set(marks.values())):
            return _renumbered(guests, foldings, finer)
        marks = finer


def _folding(
    number: int, guest: Guest, users: Mapping[Link, tuple[int, ...]], marks: Mapping[Link, Hashable]
) -> Folding:
    shared = {guest.place.own(link): marks[link] for link, by in users.items() if number in by}
    return Folding(guest.repeated, replace(guest.machine, shared=shared))


def _classes(folding: Folding, guest: Guest) -> Iterator[tuple[Link, int]]:
    """Yield the links that a guest loads, with the numbers of their classes."""
    desk = folding.desk
    for link, number in zip(desk.groups.links, desk.classes.links.tolist(), strict=True):
        yield guest.place.link(link), number


def _renumbered(
    guests: Sequence[Guest], foldings: Sequence[Folding], classes: Mapping[Link, Hashable]
) -> Together:
    """The programs of all guests, with link classes numbered in common for all guests."""
    numbers: dict[Hashable, int] = {
        mark: n for n, mark in enumerate(dict.fromkeys(classes.values()))
    }
    shared = len(numbers)
    capacity, names = [0.0] * shared, [""] * shared
    programs = []
    for guest, folding in zip(guests, foldings, strict=True):
        folded, place = folding.folded(), {}
        first = {number: link for link, number in reversed(list(_classes(folding, guest)))}
        for number, link_class in enumerate(folded.links):
            link = first[number]
            mark = classes.get(link)
            if mark is None:
                place[number] = len(capacity)
                capacity.append(0.0)
                names.append("")
            else:
                place[number] = numbers[mark]
            capacity[place[number]] = link_class.capacity
            names[place[number]] = names[place[number]] or link_name(link)
        programs.append(_Relinking(place).program(folded))
    return Together(tuple(programs), tuple(capacity), tuple(names), shared)


class _Relinking:
    """Rewrites a folded program with new numbers for its links."""

    def __init__(self, place: Mapping[int, int]) -> None:
        self.place = place
        self._traffic: dict[int, tuple[Traffic, Traffic]] = {}  # by the id of the first object
        self._items: dict[int, tuple[tuple[Item, ...], tuple[Item, ...]]] = {}

    def program(self, folded: FoldedProgram) -> FoldedProgram:
        for transfer in folded.transfers:  # belong to this program alone
            transfer.traffic = self._moved(transfer.traffic)
        roles = (
            RoleProgram(
                role.role,
                {name: list(map(self._step, steps)) for name, steps in role.streams.items()},
            )
            for role in folded.roles
        )
        return FoldedProgram(roles=tuple(roles), transfers=folded.transfers, links=folded.links)

    def _step(self, step: Step) -> Step:
        if isinstance(step, CommunicateStep) or not (step.items or step.carried):
            return step
        return replace(
            step,
            items=self._disturbed(step.items),
            links=tuple(sorted(self.place[link] for link in step.links)),
            carried=tuple((self.place[link], busy, sent) for link, busy, sent in step.carried),
        )

    def _disturbed(self, items: tuple[Item, ...]) -> tuple[Item, ...]:
        known = self._items.get(id(items))
        if known is None:
            moved = tuple(
                replace(item, traffic=tuple((self._moved(t), cause) for t, cause in item.traffic))
                for item in items
            )
            known = self._items[id(items)] = items, moved
        return known[1]

    def _moved(self, traffic: Traffic) -> Traffic:
        known = self._traffic.get(id(traffic))
        if known is None:
            loads = tuple((self.place[link], load) for link, load in traffic.loads)
            known = self._traffic[id(traffic)] = traffic, replace(traffic, loads=loads)
        return known[1]
