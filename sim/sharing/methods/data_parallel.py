"""Data parallelism by all-reduce, with and without overlap, and DataParallel in one process."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.engine.processes import Process
from sim.sharing.rendezvous import Meeting
from sim.sharing.team import Story, Team
from sim.sharing.worker import Gone, Worker, mean
from sim.sharing.workload import Piece, grouped

Vector = NDArray[np.float64]


def start(team: Team) -> None:
    """Let the team play the plan's method."""
    if team.plan.method == "data_parallel":
        team.world.start(single_process(team))
    else:
        team.play(overlapped(team) if team.plan.overlap else all_reduce_sgd(team))


def all_reduce(team: Team, size: float, values: dict[int, Vector]) -> Process:
    """The mean of what the workers hold, over the network as the collective library does it.

    What cannot be added up on the way (top-k, one bit) is gathered whole instead.
    """
    places = [team.workers[rank].place for rank in sorted(values)]
    reducible = team.plan.compression.reducible
    kind, total = ("all_reduce", size) if reducible else ("all_gather", size * len(places))
    yield team.world.collective(kind, total, places)
    return mean(values)


def messages(team: Team, group: Meeting) -> int:
    """How many compressed messages everyone reads: one, where they are added on the way."""
    return 1 if team.plan.compression.reducible else len(group.members)


def all_reduce_sgd(team: Team) -> Story:
    """Synchronous SGD: the mean of all gradients, then everybody's step (Goyal et al. 2017)."""
    group = team.meeting(lambda _, values: all_reduce(team, team.workers[0].message, values))

    def story(me: Worker, team: Team) -> Process:
        for step in team.steps():
            gradient = yield from me.passes(step)
            sent = yield from me.encode(gradient, step)
            average = yield from me.meet(group.join(me.rank, step, sent), "all-reduce")
            yield from me.decode(messages(team, group))
            yield from me.apply(average)
            count(me, team, group)

    return story


def overlapped(team: Team) -> Story:
    """DistributedDataParallel: buckets are reduced while backward goes on (Li et al. 2020).

    The task's gradient travels with the last bucket.
    """

    def reduce(key: tuple[int, int, float], values: dict[int, Vector]) -> Process:
        return all_reduce(team, key[2] * team.workers[0].message, values)

    group = team.meeting(reduce)

    def story(me: Worker, team: Team) -> Process:
        buckets = grouped(me.work.pieces, parameters=team.plan.bucket / me.work.width)
        for step in team.steps():
            gradient = me.task.gradient(me.weights, me.rank, step)
            for bucket in buckets:
                yield from me.forward(step, bucket)
            sent = me.compressed(gradient, step)
            reduced: list[Any] = []
            for number, bucket in reversed(list(enumerate(buckets))):
                share = bucket.parameters / me.work.parameters
                yield from me.backward(step, bucket)
                yield from me.encode_part(share)
                reduced.append(group.join(me.rank, (step, number, share), sent))
            average = yield from me.meet(reduced[-1], "all-reduce")
            yield from me.decode(messages(team, group))
            yield from me.apply(average)
            me.steps += 1
            count(me, team, group)

    return story


def count(me: Worker, team: Team, group: Meeting, steps: int = 1) -> None:
    """One update of all, from so many steps of each, counted once."""
    me.version += 1
    if me.version > team.version:
        team.version = me.version
        batches = sum(team.workers[rank].work.batch for rank in group.members)
        team.record.update(0, steps * batches, lambda: me.weights)


def single_process(team: Team) -> Process:
    """torch.nn.DataParallel: one interpreter drives all GPUs of a node (torch/nn/parallel).

    Every step GPU 0 scatters the inputs and broadcasts the weights; one thread a GPU launches
    its kernels, but the interpreter's lock lets one launch at a time; outputs are gathered, the
    gradients reduced on GPU 0, which alone steps. A GPU that fails for good ends the process.
    """
    world, workers, first = team.world, team.workers, team.workers[0]
    for step in team.steps():
        began = world.now
        yield from _handed_out(team, first)
        gradients = yield from _in_threads(workers, step)
        if any(me.gone for me in workers):
            break
        yield from _taken_back(team, first, gradients)
        for me in workers[1:]:
            me.weights = first.weights
            me.seconds["waiting"] += world.now - began - me.seconds.pop("pass")
        team.record.update(0, team.samples, lambda: first.weights)
    broken = any(me.gone for me in workers)
    for me in workers:
        me.gone, me.ended = broken, world.now


def _handed_out(team: Team, first: Worker) -> Process:
    """Inputs scattered and weights broadcast from GPU 0."""
    others = {me.place: 1.0 for me in team.workers[1:]}
    inputs = first.work.inputs * first.work.batch
    scattering = team.world.send(inputs, first.place, others)
    yield from first.wait(scattering, "communication", "scatter")
    places = [me.place for me in team.workers]
    copying = team.world.collective("broadcast", first.work.bytes, places)
    yield from first.wait(copying, "communication", "replicate")


def _taken_back(team: Team, first: Worker, gradients: dict[int, Vector]) -> Process:
    """Gradients reduced on GPU 0, and its step."""
    places = [me.place for me in team.workers]
    reducing = team.world.collective("reduce", first.work.bytes, places)
    yield from first.wait(reducing, "communication", "reduce")
    yield from first.apply(mean(gradients))


def _in_threads(workers: Sequence[Worker], step: int) -> Process:
    """All GPUs at once; forward is launched from python, whose lock makes threads take turns."""
    world, first = workers[0].world, workers[0]
    began, launching = world.now, sum(me.work.launches for me in workers)
    yield world.all_of([world.start(_thread(me, step, launching)) for me in workers])
    if not first.gone:
        first.seconds["waiting"] += world.now - began - first.seconds.pop("pass")
    return {me.rank: me.task.gradient(me.weights, me.rank, step) for me in workers}


def _thread(me: Worker, step: int, launching: float) -> Process:
    """Forward ends when all threads have launched theirs; autograd's backward needs no lock."""
    began = me.world.now
    whole = Piece(forward=me.work.forward, backward=me.work.backward, parameters=0.0)
    try:
        yield from me.forward(step, whole)
        late = launching - (me.world.now - began)
        if late > 0.0:
            yield from me.wait(me.world.sleep(late))
        yield from me.backward(step, whole)
    except Gone:
        me.gone = True
    else:
        me.steps += 1
    me.seconds["pass"] = me.world.now - began
