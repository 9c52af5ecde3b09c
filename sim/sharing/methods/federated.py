"""Federated averaging: rounds of some of the hosts, with unequal data, that come and go."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from sim.engine.processes import Process
from sim.sharing.methods.local_sgd import local_steps
from sim.sharing.team import Team
from sim.sharing.worker import Gone, Worker, mean

Vector = NDArray[np.float64]


def start(team: Team) -> None:
    """Let the server lead its rounds."""
    team.world.start(rounds(team))


def rounds(team: Team) -> Process:
    """Each round some hosts train at home; the mean of their changes by data moves the weights.

    McMahan et al. 2017, algorithm 1. Where a share of them may be late, the round ends without
    those (over-selection; Bonawitz et al. 2019, section 2.2).
    """
    hosts = [Host(team, me) for me in team.workers]
    for turn in team.rounds():
        chosen = yield from _chosen(team, hosts, turn)
        if not chosen:
            break
        this = Round(team, turn, len(chosen))
        for host in chosen:
            team.world.start(host.take_part(this))
        yield this.complete
        if this.answers:
            _apply(team, hosts, this.answers)
    for me in team.workers:
        me.ended = team.world.now


def _apply(team: Team, hosts: list["Host"], answers: dict[int, Vector]) -> None:
    hub, shares = team.hub, {rank: hosts[rank].share for rank in answers}
    hub.weights = hub.weights - mean(answers, shares)
    hub.version += 1
    samples = sum(hosts[rank].steps * team.workers[rank].work.batch for rank in answers)
    team.record.update(0, samples, lambda: hub.weights)


def _chosen(team: Team, hosts: list["Host"], turn: int) -> Process:
    """The participants of a round, among those who are free; waits until somebody is."""
    while not all(me.gone for me in team.workers):
        free = [host for host in hosts if host.is_free]
        if free:
            count = max(1, round(team.plan.fraction * len(free)))
            picked = team.choices(1, turn).choice(len(free), count, replace=False)
            return [free[place] for place in sorted(picked)]
        yield team.world.sleep(max(team.plan.offline / 10.0, 1e-3))
    return []


class Round:
    """What has come back of a round; `complete` fires when it is enough, or nobody is left."""

    def __init__(self, team: Team, turn: int, participants: int) -> None:
        self.turn, self.team = turn, team
        self.out = participants
        self.wanted = max(1, round(participants * (1.0 - team.plan.late)))
        self.answers: dict[int, Vector] = {}
        self.complete = team.world.event()

    def answer(self, rank: int, change: Vector) -> None:
        """A participant's change; one that is late is dropped."""
        if self.complete.triggered:
            self.team.record.dropped += 1
        else:
            self.answers[rank] = change

    def over(self) -> None:
        """One participant less is out."""
        self.out -= 1
        enough = len(self.answers) >= self.wanted or not self.out
        if enough and not self.complete.triggered:
            self.complete.succeed()


class Host:
    """A worker with its share of the data; `steps` of them in a round (E n_k / B in the paper).

    Shares follow a power law of the plan's exponent `unequal`; a host with the mean share does
    `period` steps.
    """

    def __init__(self, team: Team, me: Worker) -> None:
        self.team, self.me = team, me
        shares = [(1.0 + one.rank) ** -team.plan.unequal for one in team.workers]
        self.share = shares[me.rank] * len(shares) / sum(shares)
        self.steps = max(1, round(team.plan.period * self.share))
        self.presence = Presence(team, me.rank)
        self.busy = False

    @property
    def is_free(self) -> bool:
        there = self.presence.online(self.me.world.now)
        return there and not (self.busy or self.me.gone)

    def take_part(self, this: Round) -> Process:
        """Pull, train, push. What it was at is lost where it goes offline or fails for good."""
        me, began, self.busy = self.me, self.me.world.now, True
        try:
            yield from self.team.hub.pull(me)
            read = me.weights
            yield from local_steps(me, this.turn, self.steps)
            if self.presence.stayed(began, me.world.now):
                sent = yield from me.encode(read - me.weights, this.turn)
                yield from self.team.hub.push(me, me.message)
                this.answer(me.rank, sent)
            else:
                self.team.record.dropped += 1
        except Gone:
            me.gone = True
        self.busy = False
        this.over()


class Presence:
    """Whether a host is there: exponential times online and offline, by turns, online at first."""

    def __init__(self, team: Team, rank: int) -> None:
        self._changes = _changes(team, rank)
        self._last, self._next = 0.0, next(self._changes, float("inf"))
        self._there = True

    def online(self, now: float) -> bool:
        """Whether it is there at a moment; moments only grow."""
        while self._next <= now:
            self._there = not self._there
            self._last, self._next = self._next, next(self._changes, float("inf"))
        return self._there

    def stayed(self, since: float, now: float) -> bool:
        """Whether it has been there all the time."""
        return self.online(now) and self._last <= since


def _changes(team: Team, rank: int) -> Iterator[float]:
    """The moments at which a host goes, comes back, and so on; none where it always stays."""
    plan, choices, at = team.plan, team.choices(2, rank), 0.0
    while plan.online and plan.offline:
        for time in (plan.online, plan.offline):
            at += float(choices.exponential(time))
            yield at
