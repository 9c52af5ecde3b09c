"""What does a checkpoint cost: how long does training stop, until when is it safe, how long does
reading it back take?

Where only a bandwidth is known, a checkpoint of S bytes stops training for S / B seconds. Where the
topology has storage, its bytes are traffic, played on the links: synchronous checkpoints stop
training until they are written; asynchronous ones stop it for the copy to the hosts' memory, and
are then written beside the next steps, as evenly over as many of them as it takes. These steps
become longer where they meet the bytes on NICs, PCIe or memory: stop = copy + n (T_n - T).
"""

from collections.abc import Sequence
from math import ceil

from sim.config.dataclass import dataclass
from sim.config.units import human_seconds
from sim.engine.accounts import accounts, critical_role
from sim.engine.play import play
from sim.kind import Setup
from sim.parallel.checkpoint import Checkpoints, Copies
from sim.program.beside import alone, beside
from sim.program.causes import CHECKPOINT
from sim.program.operations import Copy
from sim.results.formatting import several
from sim.results.likely import Pace

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
    return _Checkpoint(setup, pace, checkpoints, size).saving()


def stopped(setup: Setup, pace: Pace, checkpoints: Checkpoints | None) -> float:
    """The seconds of each step for which checkpoints stop training, in the mean."""
    return saving(setup, pace, checkpoints).stop / checkpoints.steps if checkpoints else 0.0


class _Checkpoint:
    """A checkpoint of a job, as the traffic of its `copies`."""

    def __init__(self, setup: Setup, pace: Pace, checkpoints: Checkpoints, size: float) -> None:
        self.setup, self.pace, self.checkpoints = setup, pace, checkpoints
        self.copies = Copies(
            program=setup.program, topology=setup.machine.topology, checkpoints=checkpoints,
            size=size, name=setup.name,
        )  # fmt: skip

    def saving(self) -> Saving:
        """Its seconds."""
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
        """Beside how many steps copies are made, and how long each of these is."""
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
        """How long copies take where nothing else runs."""
        program = alone(self.setup.program, self.copies.work(copies))
        return play(program, self.setup.machine, engine="clock").end
