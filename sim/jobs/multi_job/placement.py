"""Which GPUs of the cluster does a job get?"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import zip_longest

import numpy as np

from sim.config.errors import InputError
from sim.hardware.cluster.topology import Topology
from sim.jobs.multi_job.placed import Place
from sim.jobs.multi_job.scenario import JobTable, Places


class OccupiedError(InputError):
    """A job names GPUs that another job has, or GPUs of a node that is out of service."""


class Occupancy:
    """The free slots of every node."""

    def __init__(self, cluster: Topology) -> None:
        self.cluster = cluster
        each = cluster.gpus_per_node
        last = cluster.gpus - (cluster.nodes - 1) * each
        self.free = [set(range(each)) for _ in range(cluster.nodes - 1)] + [set(range(last))]

        self._idle, self.out = cluster.gpus, set[int]()
        self._pods = [cluster.pod_of(node) for node in range(cluster.nodes)]

    @property
    def idle(self) -> int:
        """The number of GPUs in service that no job has."""
        return self._idle

    def take(self, place: Place) -> None:
        """Give a job its GPUs."""
        for node in place.nodes:
            self.free[node].difference_update(place.slots)
        self._idle -= len(place.nodes) * len(place.slots)

    def leave(self, place: Place) -> None:
        """Take a job's GPUs back."""
        for node in place.nodes:
            self.free[node].update(place.slots)
        self._idle += len(place.nodes) * len(place.slots)

    def fail(self, node: int) -> None:
        """Take a node out of service; its jobs have already left it."""
        self.out.add(node)
        self._idle -= len(self.free[node])
        self.free[node] = set()

    def repair(self, node: int) -> None:
        """Take a node back into service."""
        each = self.cluster.gpus_per_node
        self.out.discard(node)
        self.free[node] = set(range(min(each, self.cluster.gpus - node * each)))
        self._idle += len(self.free[node])

    def scattered(self, place: Place) -> bool:
        """Whether a place uses more pods than its number of nodes needs."""
        largest = max(Counter(self._pods).values())
        used = {self._pods[node] for node in place.nodes}
        return len(used) > -(-len(place.nodes) // largest)

    def named(self, job: JobTable, gpus: int, where: str) -> Place:
        """The place of a job that names its nodes or GPUs. Raises `InputError` if it names too few
        or too many GPUs, or GPUs that another job has."""
        cluster, each = self.cluster, self.cluster.gpus_per_node
        if job.nodes:
            nodes, slots = tuple(sorted(job.nodes)), tuple(range(cluster.taken(gpus)))
        else:
            nodes = tuple(sorted({gpu // each for gpu in job.gpus}))
            slots = tuple(sorted(gpu % each for gpu in job.gpus))
            if len(nodes) > 1 or slots != tuple(range(slots[0], slots[0] + len(slots))):
                raise InputError(where, "gpus are not neighbours in one node", "name whole nodes")
            if not self._aligned(slots[0], len(slots)):
                fault = "gpus begin amid the GPUs of a PCIe link and go on at the next link"
                raise InputError(where, fault, "begin with the first GPU of a link")
        if len(set(nodes)) < len(job.nodes):
            raise InputError(where, "a node is named twice", "name each node once")
        if max(nodes) >= cluster.nodes:
            fault = f"there is no node {max(nodes)} among {cluster.nodes}"
            raise InputError(where, fault, f"use nodes below {cluster.nodes}, or set gpus")
        if len(nodes) * len(slots) != max(gpus, len(slots) if job.nodes else 0):
            fault = f"its plan takes {gpus} GPUs, its place has {len(nodes) * len(slots)}"
            raise InputError(where, fault, "name as many GPUs, or set the job's gpus")
        place = Place(cluster, nodes, slots[:gpus] if len(nodes) == 1 else slots)
        for node in nodes:
            if not self.free[node].issuperset(place.slots):
                fault = f"another job has GPUs of node {node}"
                raise OccupiedError(where, fault, "place it on other nodes")
        return place

    def find(self, gpus: int, how: Places, rng: np.random.Generator) -> Place | None:
        """A place for `gpus` GPUs; None if there is no room."""
        if gpus > self._idle:
            return None
        each = self.cluster.taken(gpus)
        if gpus < each:
            return self._within_a_node(gpus, how, rng)
        wanted, slots = gpus // each, tuple(range(each))
        whole = each == self.cluster.gpus_per_node
        empty = [
            node
            for node, free in enumerate(self.free)
            if (len(free) == each if whole else free.issuperset(slots))
        ]
        if len(empty) < wanted:
            return None
        if how == "random":
            chosen: Iterable[int] = rng.choice(empty, wanted, replace=False).tolist()
        else:
            chosen = (self._packed if how == "packed" else self._spread)(empty, wanted)
        return Place(self.cluster, tuple(sorted(chosen)), slots)

    def _within_a_node(self, gpus: int, how: Places, rng: np.random.Generator) -> Place | None:
        """`gpus` neighbouring slots of a node with room: the fullest node if jobs are packed, the
        emptiest if jobs are spread, otherwise any node. None if no node has room."""
        each = self.cluster.gpus_per_node
        found = [
            (len(free), node, tuple(range(first, first + gpus)))
            for node, free in enumerate(self.free)
            for first in range(0, each, gpus if each % gpus == 0 else 1)
            if self._aligned(first, gpus) and free.issuperset(range(first, first + gpus))
        ]
        if not found:
            return None
        if how == "random":
            _, node, slots = found[int(rng.integers(len(found)))]
        else:
            _, node, slots = min(found) if how == "packed" else max(found, key=lambda f: f[0])
        return Place(self.cluster, (node,), slots)

    def _aligned(self, first: int, gpus: int) -> bool:
        """Whether `gpus` slots from `first` on share PCIe links as slots from 0 on do."""
        links = self.cluster.host.devices_per_link if self.cluster.host else 1
        return first % links == 0 or first % links + gpus <= links

    def _packed(self, empty: Sequence[int], wanted: int) -> list[int]:
        """Nodes of the fullest pod that has room for all; otherwise nodes of as few pods as
        possible."""
        pods = self._by_pod(empty)
        room = [nodes for nodes in pods if len(nodes) >= wanted]
        if room:
            return min(room, key=len)[:wanted]
        return [node for nodes in sorted(pods, key=len, reverse=True) for node in nodes][:wanted]

    def _spread(self, empty: Sequence[int], wanted: int) -> list[int]:
        """Nodes spread evenly over the pods; if there is a single pod, evenly over its nodes."""
        pods = self._by_pod(empty)
        if len(pods) == 1:
            return [empty[i * len(empty) // wanted] for i in range(wanted)]
        turns = zip_longest(*pods)
        return [node for turn in turns for node in turn if node is not None][:wanted]

    def _by_pod(self, nodes: Sequence[int]) -> list[list[int]]:
        pods: dict[int, list[int]] = {}
        for node in nodes:
            pods.setdefault(self._pods[node], []).append(node)
        return list(pods.values())
