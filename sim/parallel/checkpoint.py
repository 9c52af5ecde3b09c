"""A checkpoint: the copies over links by which ranks write it to storage and read it back."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Literal

from sim.config.checked import Checked
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.units import BytesPerSecond, Ge
from sim.hardware.cluster.topology import Topology
from sim.parallel.loader import Amounts, path
from sim.parallel.mesh import axis_of, dividing
from sim.program.causes import CHECKPOINT
from sim.program.operations import Communicate, Copy, HostLink, Operation
from sim.program.program import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints(Checked):
    """A checkpoint is written every `steps` steps.

    If `storage` gives a bandwidth, training stops until all bytes are written. Otherwise
    checkpoints are traffic on the links to the topology's storage. `writers` are "all" ranks (each
    writes a share), the ranks of one "replica", or the "first" rank, which gathers everything.
    `asynchronous` checkpoints stop training only for the copy to the hosts' memory, and are written
    beside the next steps. A `copy` stays in the memory of the rank's own "host", for faults that
    break no node, or also in the memory of a "peer".
    """

    steps: Annotated[int, Ge(1)]
    storage: BytesPerSecond | None = None
    writers: Literal["all", "replica", "first"] = "all"
    asynchronous: bool = False
    copy: Literal["none", "host", "peer"] = "none"

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        other = self.writers != "all" or self.asynchronous or self.copy != "none"
        if self.storage is not None and other:
            raise ValueError(
                "with storage, training stops for bytes / storage seconds; leave storage "
                "out to simulate the traffic of writers, asynchronous checkpoints and copies"
            )


@dataclass(frozen=True, kw_only=True)
class Copies:
    """The copies of a checkpoint of `size` bytes by the ranks of a program on a topology. `name` is
    the scenario's name. Raises `InputError` if the topology has no storage."""

    program: Program
    topology: Topology
    checkpoints: Checkpoints
    size: float
    name: str

    def __post_init__(self) -> None:
        if self.topology.storage is None:
            which = f"{self.topology.name} does not say what its storage is"
            remedy = "set checkpoints.storage, or add a [storage] table to the topology"
            raise InputError(self.name, f"checkpoints without storage, and {which}", remedy)

    @property
    def to_storage(self) -> tuple[Copy, ...]:
        """The copies from the devices to storage, and to peers."""
        return self._copy(_sum(_to_host(self.topology), self._path("up"))), *self._peers

    @property
    def to_host(self) -> tuple[Copy, ...]:
        """The copies from the devices to the hosts' memory."""
        if not (links := _to_host(self.topology)):
            fault = f"are copied to hosts, but {self.topology.name} does not describe its hosts"
            raise InputError(f"{self.name}, checkpoints", fault, "add a [host] table")
        return (self._copy(links),)

    @property
    def from_host(self) -> tuple[Copy, ...]:
        """The copies from the hosts' memory to storage, and to peers."""
        return self._copy(self._path("up")), *self._peers

    @property
    def safe(self) -> tuple[Copy, ...]:
        """The copies of `from_host` that make a checkpoint safe: to peers if any, or to storage."""
        return self._peers or self.from_host

    @property
    def back(self) -> tuple[Copy, ...]:
        """The copies from storage, or from peers, to the devices. A rank reads the bytes that it
        has written. The corresponding ranks of other replicas read the same bytes."""
        source = _to_peer(self.topology) if self._peers else self._path("down")
        return (self._copy(_sum(source, _from_host(self.topology)), reads=True),)

    @property
    def nearby(self) -> tuple[Copy, ...]:
        """The copies from the memory of a rank's own host to the rank, if the host keeps one."""
        if self.checkpoints.copy == "none":
            return ()
        return (self._copy(_from_host(self.topology), reads=True),)

    def work(self, copies: Sequence[Copy], share: float = 1.0) -> dict[int, Sequence[Operation]]:
        """Return the work of each stage that copies `share` of the bytes."""
        return dict.fromkeys(range(len(self.program.stages)), _work(copies, share))

    def _path(self, way: Literal["up", "down"]) -> Amounts:
        return path(self.topology, way, 1.0, self.name)

    @property
    def _peers(self) -> tuple[Copy, ...]:
        return (self._copy(_to_peer(self.topology)),) if self.checkpoints.copy == "peer" else ()

    @cached_property
    def _written(self) -> tuple[tuple[str, ...], float]:
        """The axes along which only the first rank writes, and the bytes of a writer."""
        mesh, ranks = self.program.mesh, self.topology.gpus
        replicas = [name for name in mesh if axis_of(name) in dividing("batch")]
        count = ranks
        for name in replicas:
            count //= mesh[name]
        writers: Mapping[str, tuple[tuple[str, ...], float]] = {
            "all": ((), self.size / ranks),
            "replica": (tuple(replicas), self.size / count),
            "first": (tuple(mesh), self.size),
        }
        return writers[self.checkpoints.writers]

    def _copy(self, amounts: Amounts, *, reads: bool = False) -> Copy:
        first, each = self._written
        alone = self.checkpoints.writers == "first"
        gathered = self._gathered("up" if reads else "down") if alone else ()
        used = [(link, amount) for link, amount in (*amounts, *gathered) if amount]
        return Copy(
            kind="stream", bytes=each, name="checkpoint", cause=CHECKPOINT,
            path=tuple(link for link, _ in used), loads=tuple(load for _, load in used),
            first=first if alone or not reads else (),
        )  # fmt: skip

    def _gathered(self, way: Literal["up", "down"]) -> Amounts:
        """Return the load on the first rank's NIC: the share that other nodes send or get."""
        if self.topology.nodes == 1 or not (self.topology.network and self.topology.network.nics):
            return ()
        share = 1.0 - 1.0 / self.topology.nodes
        return (("nic-up", share),) if way == "up" else (("nic-down", share),)


def _work(copies: Sequence[Copy], share: float) -> tuple[Operation, ...]:
    """Return operations that copy a share of the bytes, each copy on a stream of its own."""
    return tuple(
        Communicate(
            name=f"checkpoint {number}",
            calls=(replace(copy, bytes=copy.bytes * share, name=f"{copy.name} {number}"),),
            stream=f"checkpoint {number}",
        )
        for number, copy in enumerate(copies)
    )


def _to_host(topology: Topology) -> Amounts:
    if topology.host is None:
        return ()
    pcie: Amounts = (("pcie-up", 1.0),) if topology.device.generation != "cpu" else ()
    return *pcie, ("memory", 1.0)


def _from_host(topology: Topology) -> Amounts:
    if topology.host is None or topology.device.generation == "cpu":
        return ()
    return ("pcie-down", 1.0), ("memory", 1.0)


def _to_peer(topology: Topology) -> Amounts:
    """Return the links of the copy to one node's memory and of the copy from another node."""
    if topology.nodes == 1 or not (topology.network and topology.network.nics):
        fault = f"keep copies at peers, but {topology.name} has no other nodes behind NICs"
        raise InputError("checkpoints", fault, 'set copy = "host"')
    links: Amounts = ("nic-up", 1.0), ("nic-down", 1.0)
    if topology.host and topology.device.generation != "cpu":
        links += ("pcie-down", 1.0), ("pcie-up", 1.0)
    return (*links, ("memory", 2.0)) if topology.host else links


def _sum(*parts: Amounts) -> Amounts:
    """Return the load of several parts of a path on each link."""
    total: dict[HostLink, float] = {}
    for link, amount in (pair for part in parts for pair in part):
        total[link] = total.get(link, 0.0) + amount
    return tuple(total.items())
