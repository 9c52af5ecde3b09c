"""Local SGD, DiLoCo and asynchronous local SGD: many steps at home, then an average."""

import numpy as np
from numpy.typing import NDArray

from sim.engine.processes import Process
from sim.sharing.learning.optimizers import Optimizer, Rule
from sim.sharing.methods.data_parallel import all_reduce, count, messages
from sim.sharing.server import Server
from sim.sharing.team import Story, Team
from sim.sharing.worker import Worker

Vector = NDArray[np.float64]


def start(team: Team) -> None:
    """Let the team play the plan's method."""
    team.play(asynchronous(team) if team.plan.method == "async_local_sgd" else local_sgd(team))


def local_sgd(team: Team) -> Story:
    """H local steps, then the mean of what they came to (Stich 2019; McMahan et al. 2017).

    The mean of (start - weights) is an outer gradient: with outer SGD of rate 1 this is plain
    averaging, with a momentum SlowMo (Wang et al. 2020), with Nesterov's DiLoCo (Douillard et al.
    2023, algorithm 1). Inner state is kept between rounds, as DiLoCo does.
    """
    group = team.meeting(lambda _, values: all_reduce(team, team.workers[0].message, values))
    outer = outer_rule(team)

    def story(me: Worker, team: Team) -> Process:
        state = outer.start(me.weights.size)
        for turn in team.rounds():
            began = me.weights
            yield from local_steps(me, turn, team.plan.period)
            sent = yield from me.encode(began - me.weights, turn)
            gradient = yield from me.meet(group.join(me.rank, turn, sent), "all-reduce")
            yield from me.decode(messages(team, group))
            me.weights, state = outer.step(began, gradient, state)
            count(me, team, group, team.plan.period)

    return story


def outer_rule(team: Team) -> Optimizer:
    """The outer optimizer of the plan."""
    plan = team.plan
    rule: Rule = "nesterov" if plan.nesterov else "momentum" if plan.outer_momentum else "sgd"
    return Optimizer(rule=rule, rate=plan.outer_rate, beta=plan.outer_momentum)


def local_steps(me: Worker, turn: int, period: int) -> Process:
    """Steps of the inner optimizer on the worker's own weights."""
    for step in range(turn * period, (turn + 1) * period):
        gradient = yield from me.compute(step)
        yield from me.apply(gradient)


def asynchronous(team: Team) -> Story:
    """Asynchronous local SGD against a server (Liu et al. 2024, arXiv 2401.09135, algorithm 1).

    With dynamic local updates (their section 4.2) a worker does as many of the H steps as its
    speed allows in the time of the fastest, so that all come back about equally often.
    """
    delayed = DelayedNesterov(team.hub, team.plan.outer_rate, team.plan.outer_momentum, team)

    def story(me: Worker, team: Team) -> Process:
        period = local_updates(me, team) if team.plan.dynamic else team.plan.period
        for turn in team.rounds():
            began, read = me.weights, me.version
            yield from local_steps(me, turn, period)
            sent = yield from me.encode(began - me.weights, turn)
            yield from team.hub.push(me, me.message)
            delayed.apply(sent, read, me.work.batch * period)
            yield from team.hub.pull(me)

    return story


def local_updates(me: Worker, team: Team) -> int:
    """H x the fastest worker's step / mine, at least 1 (DyLU: steps in proportion to speed)."""
    times = [one.work.seconds * one.usual for one in team.workers]
    return max(1, int(team.plan.period * min(times) / times[me.rank]))


class DelayedNesterov:
    """Momentum that moves only every N arrivals (Liu et al. 2024, algorithm 3, with c = 0).

    Between, w <- w - rate d / N; at the N-th, m <- beta m + (sum of d) / N and
    w <- w - rate (beta m + d / N).
    """

    def __init__(self, server: Server, rate: float, beta: float, team: Team) -> None:
        self.server, self.rate, self.beta = server, rate, beta
        self.every, self.record = team.plan.delay, team.record
        self.moment: Vector = np.zeros_like(server.weights)
        self.sum: Vector = np.zeros_like(server.weights)
        self.arrivals = 0

    def apply(self, delta: Vector, read: int, samples: float) -> None:
        """One worker's change since it read version `read`."""
        server, every = self.server, self.every
        self.arrivals += 1
        self.sum = self.sum + delta
        way = delta / every
        if self.arrivals % every == 0:
            self.moment = self.beta * self.moment + self.sum / every
            self.sum = np.zeros_like(self.sum)
            way = self.beta * self.moment + way
        server.weights = server.weights - self.rate * way
        staleness = server.version - read
        server.version += 1
        self.record.update(staleness, samples, lambda: server.weights)
