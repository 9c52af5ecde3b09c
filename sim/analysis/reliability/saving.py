"""What does a checkpoint cost: how long does training stop, when is the checkpoint safe, and how
long does reading it back take?

If only a bandwidth B is known, a checkpoint of S bytes stops training for S / B seconds. If the
topology has storage, the checkpoint's bytes are traffic, played on the links. Synchronous
checkpoints stop training until they are written. Asynchronous checkpoints stop training for the
copy to the hosts' memory. The copy is then written during the next n steps, spread evenly over as
many steps as needed. If the steps' own traffic meets the copy on NICs, PCIe or memory, a step takes
T_n instead of T seconds. In all, training stops for stop = copy + n (T_n - T) seconds.
"""

from collections.abc import Sequence
from math import ceil

from sim.config.dataclass import dataclass
from sim.config.readable import human_rate, human_seconds
from sim.engine.accounts import accounts, critical_role
from sim.engine.play import play
from sim.hardware.cluster.topology import Topology
from sim.kind import Setup
from sim.parallel.checkpoint import Checkpoints, Copies
from sim.program.beside import alone, beside
from sim.program.causes import CHECKPOINT
from sim.program.operations import Copy
from sim.results.formatting import several
from sim.results.likely import Pace

_WAITS = 1e-6  # share of a step; shorter waits count as none


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """Seconds of a checkpoint. Training stops for `stop`, and the checkpoint is safe `persist`
    later. Reading it back takes `read`, or `nearby` where a host still has a copy in memory. It is
    written beside `beside` steps; their additional time is part of `stop`."""

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
        """Return the seconds of a checkpoint that stops training until its bytes are in storage."""
        return cls(stop=size / bandwidth, read=size / bandwidth)


def saving(setup: Setup, pace: Pace, checkpoints: Checkpoints, size: float = 0.0) -> Saving:
    """Return the seconds of a scenario's checkpoint of `size` bytes (0: the job's own). Raises
    `InputError` where neither a bandwidth nor the topology's storage is known."""
    size = size or pace.size
    if checkpoints.storage is not None:
        return Saving.at(size, checkpoints.storage)
    return _Checkpoint(setup, pace, checkpoints, size).saving()


def stored(topology: Topology, saved: Saving | None) -> tuple[str, ...]:
    """Say to which storage of a topology the traffic of checkpoints was played."""
    storage = topology.storage
    if saved is None or storage is None:
        return ()
    place = f"[storage] of {topology.name}, whose file has the sources"
    if not storage.remote:
        return (f"checkpoints go to drives of the nodes ({place})",)
    nodes = f"each {several(storage.nodes, 'node')}" if storage.nodes else "all nodes"
    rates = f"{human_rate(storage.write, 'B/s')} written, {human_rate(storage.read, 'B/s')} read"
    return (f"checkpoints go to a store for {nodes}: {rates} ({place})",)


def stopped(setup: Setup, pace: Pace, checkpoints: Checkpoints | None) -> float:
    """Return the mean seconds per step for which checkpoints stop training."""
    return saving(setup, pace, checkpoints).stop / checkpoints.steps if checkpoints else 0.0


class _Checkpoint:
    """A job's checkpoint as traffic, which `copies` describes."""

    def __init__(self, setup: Setup, pace: Pace, checkpoints: Checkpoints, size: float) -> None:
        self.setup, self.pace, self.checkpoints = setup, pace, checkpoints
        self.copies = Copies(
            program=setup.program, topology=setup.machine.topology, checkpoints=checkpoints,
            size=size, name=setup.name,
        )  # fmt: skip

    def saving(self) -> Saving:
        """Play the copies, and return the seconds of the checkpoint."""
        copies = self.copies
        nearby = self._seconds(copies.nearby) if copies.nearby else None
        read = self._seconds(copies.back)
        if not self.checkpoints.asynchronous:
            return Saving(stop=self._seconds(copies.to_storage), read=read, nearby=nearby)
        stop = self._seconds(copies.to_host)
        steps, step = self._beside(copies.from_host)
        peer = self.checkpoints.copy == "peer"
        return Saving(
            stop=stop + steps * max(step - self.pace.seconds, 0.0),
            persist=self._seconds(copies.safe) if steps == 1 or peer else steps * step,
            read=read, nearby=nearby, beside=steps,
        )  # fmt: skip

    def _beside(self, copies: Sequence[Copy]) -> tuple[int, float]:
        """Return the number of steps beside which copies are made, and the seconds of such a
        step."""
        steps = max(ceil(self._seconds(copies) / self.pace.seconds), 1)
        steps = min(steps, self.checkpoints.steps)
        while True:
            work = self.copies.work(copies, 1.0 / steps)
            record = play(beside(self.setup.program, work, self.setup.name), self.setup.machine)
            account = accounts(record)[critical_role(record).index]
            waits = account.get(CHECKPOINT, 0.0) > _WAITS * record.step_time
            if not waits or steps >= self.checkpoints.steps:
                return steps, record.step_time
            steps = min(ceil(1.2 * steps), self.checkpoints.steps)

    def _seconds(self, copies: Sequence[Copy]) -> float:
        """Return how long copies take when nothing else runs (s)."""
        program = alone(self.setup.program, self.copies.work(copies))
        return play(program, self.setup.machine, engine="clock").end
