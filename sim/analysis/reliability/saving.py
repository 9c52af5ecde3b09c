"""What does a checkpoint cost: how long does training stop, until when is it safe, how long does
reading it back take?

Where only a bandwidth is known, a checkpoint of S bytes stops training for S / B seconds. Where the
topology has storage, its bytes are traffic, played on the links: synchronous checkpoints stop
training until they are written; asynchronous ones stop it for the copy to the hosts' memory, and
are then written beside the next steps, as evenly over as many of them as it takes. These steps
become longer where they meet the bytes on NICs, PCIe or memory: stop = copy + n (T_n - T).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Literal

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.units import human_seconds
from sim.engine.accounts import accounts, critical_role
from sim.engine.play import play
from sim.hardware.cluster.topology import Topology
from sim.kind import Setup
from sim.parallel.loader import Amounts, path
from sim.parallel.mesh import axis_of, dividing
from sim.program.beside import alone, beside
from sim.program.causes import CHECKPOINT
from sim.program.operations import Communicate, Copy, HostLink, Operation
from sim.program.program import Program
from sim.results.formatting import several
from sim.results.likely import Pace
from sim.scenario.scenario import Checkpoints

_WAITS = 1e-6  # of a step, that are none


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """Seconds of a checkpoint: training stops for `stop`, the checkpoint is safe `persist` later,
    reading it back takes `read`, or `nearby` where a host still has its copy in memory. `beside`
    are the steps that are longer meanwhile; that is part of `stop`."""

    stop: float
    persist: float = 0.0
    read: float
    nearby: float | None = None
    beside: int = 0

    def __str__(self) -> str:
        said = [f"training stops for {human_seconds(self.stop)}"]
        if self.beside:
            said.append(f"they are written beside {several(self.beside, 'step')}")
        said.append(f"safe {human_seconds(self.persist)} later")
        said.append(f"read back in {human_seconds(self.read)}")
        if self.nearby is not None:
            said.append(f"from a host's memory in {human_seconds(self.nearby)}")
        return ", ".join(said)

    @classmethod
    def at(cls, size: float, bandwidth: float) -> "Saving":
        """A checkpoint for which training stops until its bytes are in storage."""
        return cls(stop=size / bandwidth, read=size / bandwidth)


def saving(setup: Setup, pace: Pace, checkpoints: Checkpoints, size: float = 0.0) -> Saving:
    """The seconds of a scenario's checkpoints, of `size` bytes if not of the job's own. Raises
    `InputError` where neither a bandwidth nor the topology's storage is known."""
    size = size or pace.size
    if checkpoints.storage is not None:
        return Saving.at(size, checkpoints.storage)
    topology = setup.machine.topology
    if topology.storage is None:
        fault = f"checkpoints without storage, and {topology.name} does not say what its storage is"
        remedy = "set checkpoints.storage, or add a [storage] table to the topology"
        raise InputError(setup.name, fault, remedy)
    return _Checkpoint(setup, pace, checkpoints, size).saving()


def stopped(setup: Setup, pace: Pace, checkpoints: Checkpoints | None) -> float:
    """The seconds of each step for which checkpoints stop training, in the mean."""
    return saving(setup, pace, checkpoints).stop / checkpoints.steps if checkpoints else 0.0


class _Checkpoint:
    """A checkpoint of a job, as the traffic of those who write it."""

    def __init__(self, setup: Setup, pace: Pace, checkpoints: Checkpoints, size: float) -> None:
        self.setup, self.pace, self.checkpoints = setup, pace, checkpoints
        self.program: Program = setup.program
        self.machine, self.topology = setup.machine, setup.machine.topology
        mesh, ranks = self.program.mesh, self.topology.gpus
        replicas = [name for name in mesh if axis_of(name) in dividing("batch")]
        count = ranks
        for name in replicas:
            count //= mesh[name]
        writers: Mapping[str, tuple[tuple[str, ...], float]] = {
            "all": ((), size / ranks),
            "replica": (tuple(replicas), size / count),
            "first": (tuple(mesh), size),
        }
        self.first, self.each = writers[checkpoints.writers]

    def saving(self) -> Saving:
        """Its seconds. What a rank has written it reads, and so do its peers in other replicas."""
        up, down = (path(self.topology, way, 1.0, self.setup.name) for way in ("up", "down"))
        out, back = _to_host(self.topology), _from_host(self.topology)
        peer = [self._copy(_to_peer(self.topology))] if self.checkpoints.copy == "peer" else []
        kept = self.checkpoints.copy != "none"
        nearby = self._seconds(self._copy(back, reads=True)) if kept else None
        source = _to_peer(self.topology) if peer else down
        read = self._seconds(self._copy(_sum(source, back), reads=True))
        if not self.checkpoints.asynchronous:
            stop = self._seconds(self._copy(_sum(out, up)), *peer)
            return Saving(stop=stop, read=read, nearby=nearby)
        if not out:
            fault = f"are copied to hosts, of which {self.topology.name} says nothing"
            raise InputError(f"{self.setup.name}, checkpoints", fault, "add a [host] table")
        steps, step = self._beside([self._copy(up), *peer])
        safe = self._seconds(*(peer or [self._copy(up)]))  # peers have it sooner than the storage
        return Saving(
            stop=self._seconds(self._copy(out)) + steps * max(step - self.pace.seconds, 0.0),
            persist=safe if steps == 1 or peer else steps * step,
            read=read, nearby=nearby, beside=steps,
        )  # fmt: skip

    def _beside(self, copies: Sequence[Copy]) -> tuple[int, float]:
        """Beside how many steps copies are made, and how long each of these is."""
        steps = max(ceil(self._seconds(*copies) / self.pace.seconds), 1)
        steps = min(steps, self.checkpoints.steps)
        while True:
            work = self._by_stage(_work(copies, 1.0 / steps))
            record = play(beside(self.program, work, self.setup.name), self.machine)
            account = accounts(record)[critical_role(record).index]
            waits = account.get(CHECKPOINT, 0.0) > _WAITS * record.step_time
            if not waits or steps >= self.checkpoints.steps:
                return steps, record.step_time
            steps = min(ceil(1.2 * steps), self.checkpoints.steps)

    def _copy(self, amounts: Amounts, *, reads: bool = False) -> Copy:
        alone = self.checkpoints.writers == "first"
        gathered = self._gathered("up" if reads else "down") if alone else ()
        used = [(link, amount) for link, amount in (*amounts, *gathered) if amount]
        return Copy(
            kind="stream", bytes=self.each, name="checkpoint", cause=CHECKPOINT,
            path=tuple(link for link, _ in used), loads=tuple(load for _, load in used),
            first=self.first if alone or not reads else (),
        )  # fmt: skip

    def _gathered(self, way: Literal["up", "down"]) -> Amounts:
        """What other nodes send to the first rank, or get from it, on its NIC."""
        if self.topology.nodes == 1 or not (self.topology.network and self.topology.network.nics):
            return ()
        share = 1.0 - 1.0 / self.topology.nodes
        return (("nic-up", share),) if way == "up" else (("nic-down", share),)

    def _seconds(self, *copies: Copy) -> float:
        """How long copies take where nothing else runs."""
        program = alone(self.program, self._by_stage(_work(copies, 1.0)))
        return play(program, self.machine, engine="clock").end

    def _by_stage(self, work: Sequence[Operation]) -> dict[int, Sequence[Operation]]:
        return dict.fromkeys(range(len(self.program.stages)), work)


def _work(copies: Sequence[Copy], share: float) -> tuple[Operation, ...]:
    """Copies of a share of the bytes, on streams of their own."""
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
    """From a host's memory to that of another node, which sends as much to a third one."""
    if topology.nodes == 1 or not (topology.network and topology.network.nics):
        fault = f"keep copies at peers, but {topology.name} has no other nodes behind NICs"
        raise InputError("checkpoints", fault, 'set copy = "host"')
    links: Amounts = ("nic-up", 1.0), ("nic-down", 1.0)
    if topology.host and topology.device.generation != "cpu":
        links += ("pcie-down", 1.0), ("pcie-up", 1.0)
    return (*links, ("memory", 2.0)) if topology.host else links


def _sum(*parts: Amounts) -> Amounts:
    """What several parts of a way put on each link."""
    total: dict[HostLink, float] = {}
    for link, amount in (pair for part in parts for pair in part):
        total[link] = total.get(link, 0.0) + amount
    return tuple(total.items())
