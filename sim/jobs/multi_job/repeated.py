"""Jobs that repeat their steps on one clock and one network.

A step of a job begins when all its ranks have ended the step before, as in `sim.simulate`. Steps of
different jobs are not tied to one another.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from sim.config.counting import polled
from sim.config.errors import InputError
from sim.engine.events import Clock
from sim.engine.folded import ComputeStep, FoldedProgram
from sim.engine.meetings import Meetings
from sim.engine.network import Network
from sim.engine.role_process import RoleProcess
from sim.jobs.multi_job.folding import Together


@dataclass(slots=True, eq=False)
class Steps:
    """The steps of a job: when the first step began, and when each step ended (s)."""

    begin: float
    ends: list[float] = field(default_factory=list)

    @property
    def seconds(self) -> list[float]:
        """How long each step took."""
        return [b - a for a, b in zip([self.begin, *self.ends], self.ends, strict=False)]


class _Repeating:
    """A job that repeats its program from a moment on."""

    def __init__(
        self, env: Clock, network: Network, program: FoldedProgram, begin: float, wanted: int
    ) -> None:
        self.env, self.network, self.program = env, network, program
        self.steps, self.wanted = Steps(begin), wanted
        self.processes: list[RoleProcess] = []
        env.alarm(begin, lambda _: self._begin())

    @property
    def done(self) -> bool:
        """Whether the job has played as many steps as are wanted."""
        return len(self.steps.ends) >= self.wanted

    def _begin(self) -> None:
        meetings = Meetings(self.env, self.program, self.network)
        self._left = len(self.program.roles)
        self.processes = [
            RoleProcess(self.env, role, meetings, self._role_ended) for role in self.program.roles
        ]
        for process in self.processes:
            process.host_free = self.env.now  # the host launches nothing of a step before it begins
            process.begin()

    def _role_ended(self) -> None:
        self._left -= 1
        if not self._left:
            self.steps.ends.append(self.env.now)
            self.env.alarm(self.env.now, lambda _: self._begin())


def repeat(jobs: Together, begins: Sequence[float], steps: int) -> list[Steps]:
    """Play each job's steps from its moment in `begins` on, until every job has played `steps`
    steps; faster jobs go on meanwhile. Raises `InputError` if a job waits forever."""
    env = Clock()
    network = Network(env, jobs.capacity)
    running = [
        _Repeating(env, network, program, begin, steps)
        for program, begin in zip(jobs.programs, begins, strict=True)
    ]
    total = steps * len(running)
    with polled(
        lambda: sum(min(len(job.steps.ends), steps) for job in running), total=total, unit="step"
    ):
        while not all(job.done for job in running):
            if env.peek() == inf:
                raise InputError("job", "its ranks wait for one another forever", "check its plan")
            env.step()
    return [job.steps for job in running]


def carried(program: FoldedProgram) -> dict[int, float]:
    """Bytes at line rate that a step puts on each link, by the program's number of the link."""
    sizes: dict[int, float] = {}
    for transfer in program.transfers:
        for link, size, _ in transfer.traffic.carried():
            sizes[link] = sizes.get(link, 0.0) + size
    for role in program.roles:
        for steps in role.streams.values():
            for step in steps:
                if isinstance(step, ComputeStep):
                    for link, size, _ in step.carried:
                        sizes[link] = sizes.get(link, 0.0) + size
    return sizes
