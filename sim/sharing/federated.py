"""Federated averaging: rounds of some of the hosts, with unequal data, that come and go."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from sim.engine.processes import Event, Process
from sim.sharing.local_sgd import local_steps
from sim.sharing.team import Team
from sim.sharing.worker import Gone, Worker, mean

Vector = NDArray[np.float64]


def start(team: Team) -> None:
    """Let the server lead its rounds."""
    team.world.start(rounds(team))


def rounds(team: Team) -> Process:
    """Each round some hosts train at home; their mean by data replaces the weights.

    McMahan et al. 2017, algorithm 1. Where a share of them may be late, the round ends without
    those (over-selection; Bonawitz et al. 2019, section 2.2).
    """
    there = [Presence(team, me.rank) for me in team.workers]
    sizes = data_sizes(team)
    for turn in team.rounds():
        chosen = yield from _chosen(team, there, turn)
        if not chosen:
            break
        wanted = max(1, round(len(chosen) * (1.0 - team.plan.late)))
        answers: dict[int, Vector] = {}
        enough = team.world.event()
        for me in chosen:
            team.world.start(_at_home(me, chosen, team, turn, answers, wanted, enough))
        yield enough
        if not answers:
            continue
        shares = {rank: sizes[rank] for rank in answers}
        team.hub.weights = mean(answers, shares)
        team.hub.version += 1
        samples = sum(team.workers[rank].work.batch for rank in answers) * team.plan.period
        team.record.update(0, samples, lambda: team.hub.weights)
    for me in team.workers:
        me.ended = team.world.now


def _at_home(
    me: Worker,
    chosen: list[Worker],
    team: Team,
    turn: int,
    answers: dict[int, Vector],
    wanted: int,
    enough: Event,
) -> Process:
    """One host's part of a round: pull, train, push."""
    version = team.hub.version
    try:
        yield from team.hub.pull(me)
        yield from local_steps(me, turn, team.plan.period)
        sent = yield from me.encode(me.weights, turn)
        yield from team.hub.push(me, me.message)
    except Gone:
        me.gone = True
    else:
        if team.hub.version == version and not enough.triggered:
            answers[me.rank] = sent
        else:
            team.record.dropped += 1
    still_out = sum(not one.gone and one.rank not in answers for one in chosen)
    if (len(answers) >= wanted or not still_out) and not enough.triggered:
        enough.succeed()


def _chosen(team: Team, there: list["Presence"], turn: int) -> Process:
    """The participants of a round, among those who are online; waits until somebody is."""
    while not all(me.gone for me in team.workers):
        now = team.world.now
        online = [me for me in team.workers if not me.gone and there[me.rank].online(now)]
        if online:
            count = max(1, round(team.plan.fraction * len(online)))
            picked = team.choices(1, turn).choice(len(online), count, replace=False)
            return [online[place] for place in sorted(picked)]
        yield team.world.sleep(max(team.plan.offline / 10.0, 1e-3))
    return []


class Presence:
    """Whether a host is there: exponential times online and offline, by turns, online at first."""

    def __init__(self, team: Team, rank: int) -> None:
        self._changes = _changes(team, rank)
        self._next = next(self._changes, float("inf"))
        self._there = True

    def online(self, now: float) -> bool:
        while self._next <= now:
            self._there = not self._there
            self._next = next(self._changes, float("inf"))
        return self._there


def _changes(team: Team, rank: int) -> Iterator[float]:
    """The moments at which a host goes, comes back, and so on; none where it always stays."""
    plan, choices, at = team.plan, team.choices(2, rank), 0.0
    while plan.online and plan.offline:
        for time in (plan.online, plan.offline):
            at += float(choices.exponential(time))
            yield at


def data_sizes(team: Team) -> list[float]:
    """Each worker's share of the data: a power law of the plan's exponent, 0 makes them equal."""
    return [float((1.0 + me.rank) ** -team.plan.unequal) for me in team.workers]
