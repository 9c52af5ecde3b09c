"""Parameter servers: bulk synchronous, asynchronous, stale synchronous, with backup workers.

Li et al. 2014 (OSDI), Scaling Distributed Machine Learning with the Parameter Server. All workers
begin with the same weights; a server sends new ones as soon as a worker may have them, so a pull
is one message and has no request of its own.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.engine.processes import Event, Process
from sim.sharing.rendezvous import Clocks, Meeting
from sim.sharing.team import Story, Team
from sim.sharing.worker import Worker, mean
from sim.sharing.workload import Piece, grouped

Vector = NDArray[np.float64]


def start(team: Team) -> None:
    """Let the team play the plan's mode."""
    plan = team.plan
    if plan.overlap:
        team.play(layer_by_layer(team))
    elif plan.mode == "backup":
        team.play(with_backup_workers(team, plan.backup))
    elif plan.mode == "ssp":
        team.play(stale_synchronous(team.clocks(), plan.bound))
    else:
        team.play(asynchronous if plan.mode == "async" else bulk_synchronous(team))


def asynchronous(me: Worker, team: Team) -> Process:
    """Nobody waits for anybody: Downpour SGD (Dean et al. 2012, section 4.1)."""
    for step in team.steps():
        gradient = yield from me.compute(step)
        sent = yield from me.encode(gradient, step)
        yield from team.hub.push(me, me.message)
        team.hub.apply(sent, me.version, me.work.batch)
        yield from team.hub.pull(me)


def stale_synchronous(clocks: Clocks, bound: int) -> Story:
    """No worker is more than `bound` steps ahead of the slowest (Ho et al. 2013, section 2)."""

    def story(me: Worker, team: Team) -> Process:
        for step in team.steps():
            gradient = yield from me.compute(step)
            sent = yield from me.encode(gradient, step)
            yield from team.hub.push(me, me.message)
            team.hub.apply(sent, me.version, me.work.batch)
            clocks.tick(me.rank)
            yield from me.wait(clocks.reach(step + 1 - bound))
            yield from team.hub.pull(me)

    return story


def bulk_synchronous(team: Team) -> Story:
    """The server waits for every gradient and applies their mean (Valiant 1990's supersteps)."""
    everyone = team.meeting(lambda _, gradients: _applied(team, gradients))

    def story(me: Worker, team: Team) -> Process:
        for step in team.steps():
            gradient = yield from me.compute(step)
            sent = yield from me.encode(gradient, step)
            yield from team.hub.push(me, me.message)
            yield from me.meet(everyone.join(me.rank, step, sent))
            yield from team.hub.pull(me)

    return story


def _applied(team: Team, gradients: dict[int, Vector]) -> Process:
    """The update itself takes no time: it went into the queue with the last push."""
    _apply_mean(team, gradients)
    yield from ()


def _apply_mean(team: Team, gradients: dict[int, Vector]) -> None:
    batches = sum(team.workers[rank].work.batch for rank in gradients)
    team.hub.apply(mean(gradients), team.hub.version, batches)


def with_backup_workers(team: Team, backup: int) -> Story:
    """The first n - b gradients count, later ones are dropped (Chen et al. 2016, algorithm 3)."""
    first_ones = FirstOnes(team, backup)

    def story(me: Worker, team: Team) -> Process:
        for step in team.steps():
            if team.plan.until is None and team.hub.version >= team.plan.steps:
                return
            gradient = yield from me.compute(step)
            sent = yield from me.encode(gradient, step)
            yield from team.hub.push(me, me.message)
            if me.version < team.hub.version:
                team.record.dropped += 1
            else:
                yield from me.wait(first_ones.bring(me.rank, sent))
            yield from team.hub.pull(me)

    return story


class FirstOnes:
    """Gradients of one round, until all but `backup` of those who are there have brought theirs."""

    def __init__(self, team: Team, backup: int) -> None:
        self.team, self.backup = team, backup
        self.members = {me.rank for me in team.workers}
        self.collected: dict[int, Vector] = {}
        self.complete = team.world.event()
        team.when_one_leaves(self.leave)

    def bring(self, rank: int, gradient: Vector) -> Event:
        """Fires when the round is complete."""
        self.collected[rank] = gradient
        this_round = self.complete
        self._apply_if_enough()
        return this_round

    def leave(self, rank: int) -> None:
        self.members.discard(rank)
        self._apply_if_enough()

    def _apply_if_enough(self) -> None:
        if self.collected and len(self.collected) >= len(self.members) - self.backup:
            _apply_mean(self.team, self.collected)
            self.collected = {}
            complete, self.complete = self.complete, self.team.world.event()
            complete.succeed()


def layer_by_layer(team: Team) -> Story:
    """Each layer is pushed as soon as its gradient is there and pulled while others compute.

    Poseidon's wait-free backpropagation (Zhang et al. 2017, section 3.1); the next forward pass
    waits for each layer in turn (Jayarajan et al. 2019). Layers are joined to at least the plan's
    `bucket`. The arithmetic goes with the first layer, which is pushed last and needed first.
    """
    everyone = team.meeting(lambda key, gradients: _apply_layer(team, key[1], gradients))

    def story(me: Worker, team: Team) -> Process:
        layers = grouped(me.work.pieces, parameters=team.plan.bucket / me.work.width)
        there: dict[int, Any] = {}
        for step in team.steps():
            for number, layer in enumerate(layers):
                if number in there:
                    yield from _arrived(me, team, there.pop(number), layer)
                yield from me.forward(step, layer)
            sent = me.compressed(me.task.gradient(me.weights, me.rank, step), step)
            for number, layer in reversed(list(enumerate(layers))):
                yield from me.backward(step, layer)
                share = layer.parameters / me.work.parameters
                yield from me.encode_part(share)
                trip = _round_trip(me, team, everyone, (step, number), share, sent)
                there[number] = team.world.start(trip)
            me.steps += 1
        for number in sorted(there):
            yield from _arrived(me, team, there[number], layers[number])

    return story


def _arrived(me: Worker, team: Team, trip: Event, layer: Piece) -> Process:
    """A layer is back; where servers only sum, its optimizer's step follows."""
    yield from me.wait(trip)
    if team.hub.sums:
        yield from me.optimizer_pass(layer.parameters / me.work.parameters)


def _round_trip(
    me: Worker, team: Team, everyone: Meeting, key: Any, share: float, gradient: Vector
) -> Process:
    """One layer to the servers, its mean back: beside the passes.

    The GPUs of a node each reduce, send and receive a part of it, and gather the others' parts.
    """
    hub, world, began = team.hub, team.world, team.world.now
    size, several = share * me.work.bytes, len(me.place.gpus) > 1
    if several:
        yield world.collective("reduce_scatter", size, [me.place])
    yield hub.arrival(me, share * me.message)
    yield hub.turn(size)
    weights, _ = yield everyone.join(me.rank, key, gradient)
    yield world.gather(size, hub.shards.places, me.place)
    if several:
        yield world.collective("all_gather", size, [me.place])
    me.note(f"push and pull {key[1]}", "data communication", began)
    if key[1] == 0:
        me.weights, me.version = weights, hub.version


def _apply_layer(team: Team, layer: int, gradients: dict[int, Vector]) -> Process:
    if layer == 0:
        _apply_mean(team, gradients)
    yield from ()
    return team.hub.weights
