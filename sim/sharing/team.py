"""Workers that train together: what every way to share updates is given."""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from itertools import count

import numpy as np
from numpy.typing import NDArray

from sim.engine.processes import Process, World
from sim.sharing.learning.task import Task
from sim.sharing.plan import Sharing
from sim.sharing.record import Record
from sim.sharing.rendezvous import Act, Clocks, Meeting, Post
from sim.sharing.replicas import Replicas
from sim.sharing.server import Server
from sim.sharing.worker import Gone, Worker

Vector = NDArray[np.float64]
Story = Callable[[Worker, "Team"], Process]


@dataclass(slots=True)
class Team:
    """The workers, the world they are in, and what they share.

    `seed` feeds the choices of the method itself (partners, participants), apart from data and
    stragglers.
    """

    plan: Sharing
    world: World
    workers: list[Worker]
    task: Task
    record: Record
    server: Server | None = None
    letters: Post | None = None
    version: int = 0
    _leavers: list[Callable[[int], None]] = field(default_factory=list)

    def play(self, story: Story) -> None:
        """Every worker lives by the story until it has done its steps or fails for good."""
        for me in self.workers:
            self.world.start(self._life(me, story))

    def steps(self) -> Iterator[int]:
        """The steps of one worker: so many, or without end where the time limits them."""
        return iter(range(self.plan.steps)) if self.plan.until is None else count()

    def rounds(self) -> Iterator[int]:
        """The rounds of `period` steps that make up the steps of one worker."""
        turns = max(1, self.plan.steps // self.plan.period)
        return iter(range(turns)) if self.plan.until is None else count()

    def _life(self, me: Worker, story: Story) -> Generator:  # type: ignore[type-arg]
        try:
            yield from story(me, self)
        except Gone:
            me.gone = True
            for leave in self._leavers:
                leave(me.rank)
        me.ended = self.world.now

    # What they share.

    def when_one_leaves(self, leave: Callable[[int], None]) -> None:
        """Call this with the rank of everyone who fails for good."""
        self._leavers.append(leave)

    @property
    def hub(self) -> Server:
        assert self.server is not None, "this way to share needs servers"
        return self.server

    def meeting(self, act: Act) -> Meeting:
        """A place where all workers come together."""
        made = Meeting(self.world, [me.rank for me in self.workers], act)
        self._leavers.append(made.leave)
        return made

    def clocks(self) -> Clocks:
        made = Clocks(self.world, [me.rank for me in self.workers])
        self._leavers.append(made.leave)
        return made

    def post(self) -> Post:
        places = {me.rank: me.place for me in self.workers}
        made = self.letters = Post(self.world, places, rendezvous=self.plan.rendezvous)
        self._leavers.append(made.leave)
        return made

    def replicas(self) -> Replicas:
        """What those who gossip know of each other."""
        plan = self.plan
        return Replicas(self.task.start, plan.compression, rate=plan.consensus, seed=plan.seed)

    def choices(self, *key: int) -> np.random.Generator:
        """A generator for the method's own choices, named by what they are for."""
        return np.random.default_rng((self.plan.seed, 7, *key))

    @property
    def samples(self) -> float:
        """Samples of one step of all workers."""
        return float(sum(me.work.batch for me in self.workers))

    def average(self) -> Vector:
        """The mean of what all who are left hold, where nobody holds the weights of all."""
        left = [me.weights for me in self.workers if not me.gone] or [self.workers[0].weights]
        return np.asarray(sum(left[1:], left[0]) / len(left))
