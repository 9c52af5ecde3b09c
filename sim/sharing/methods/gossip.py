"""Gossip: workers average with a few neighbours; nobody holds the weights of all."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.engine.processes import Process
from sim.sharing.graphs import exponential_hops, graph, mixing
from sim.sharing.rendezvous import Post
from sim.sharing.replicas import Replicas
from sim.sharing.team import Story, Team
from sim.sharing.worker import Worker

Vector = NDArray[np.float64]


def start(team: Team) -> None:
    """Let the team play the plan's algorithm."""
    stories = {"d_psgd": d_psgd, "ad_psgd": ad_psgd, "sgp": push_sum, "random_pairs": random_pairs}
    team.play(stories[team.plan.algorithm](team))


def d_psgd(team: Team) -> Story:
    """Average with all neighbours, then step (Lian et al. 2017, algorithm 1).

    x_i <- sum_j W_ij x_j - rate g(x_i). With overlap the exchange runs beside the gradient, which
    the algorithm allows: both start from x_i.
    """
    post, replicas = team.post(), team.replicas()
    neighbours = graph(team.plan.graph, len(team.workers))
    rows = mixing(neighbours)

    def tell(me: Worker, step: int) -> Process:
        yield from me.encode_part(1.0)
        known = replicas.told(me.rank, "all", me.weights, step)
        post.send(me.rank, neighbours[me.rank], step, me.message, known)
        return known

    def story(me: Worker, team: Team) -> Process:
        beside = neighbours[me.rank]
        for step in team.steps():
            if team.plan.overlap:
                known = yield from tell(me, step)
                post.expect(beside, me.rank, step)
            gradient = yield from me.compute(step)
            if not team.plan.overlap:
                known = yield from tell(me, step)
            letters = yield from _letters(me, post, beside, step)
            me.weights = replicas.pulled(me, rows[me.rank], known, letters)
            yield from me.apply(gradient)
            _count(me, team)

    return story


def _letters(me: Worker, post: Post, beside: Sequence[int], step: int) -> Process:
    """What the neighbours have written; those that are gone write nothing."""
    found: dict[int, Vector] = {}
    for other in beside:
        value = yield from _letter(me, post, other, step)
        if value is not None:
            found[other] = value
    yield from me.decode(len(found))
    return found


def ad_psgd(team: Team) -> Story:
    """Step, and average with one random neighbour, atomically (Lian et al. 2018, algorithm 1).

    The neighbour is not asked and does not stop computing: its gradient was taken on weights that
    have changed since. With overlap the exchange runs beside the gradient.
    """
    neighbours, replicas = graph(team.plan.graph, len(team.workers)), team.replicas()

    def story(me: Worker, team: Team) -> Process:
        choices, overlap = team.choices(me.rank), team.plan.overlap
        for step in team.steps():
            read = me.version
            gradient: Any = None if overlap else (yield from me.compute(step))
            yield from me.encode_part(1.0)
            other = _partner(team, neighbours[me.rank], choices)
            meeting = team.world.start(_averaged(me, other, replicas))
            gradient = (yield from me.compute(step)) if overlap else gradient
            yield from me.wait(meeting, "communication")
            yield from me.decode()
            yield from me.apply(gradient)
            team.record.update(me.version - read - 1, me.work.batch, team.average)

    return story


def _partner(team: Team, beside: Sequence[int], choices: np.random.Generator) -> Worker | None:
    """One of the neighbours that are there now."""
    there = [rank for rank in beside if not team.workers[rank].away]
    return team.workers[choices.choice(there)] if there else None


def _averaged(me: Worker, other: Worker | None, replicas: Replicas) -> Process:
    if other is not None:
        began = me.world.now
        yield me.world.swap(me.message, me.place, other.place)
        half = {me.rank: 0.5, other.rank: 0.5}
        mine = replicas.told(me.rank, other.rank, me.weights, me.version)
        theirs = replicas.told(other.rank, me.rank, other.weights, other.version)
        me.weights = replicas.pulled(me, half, mine, {other.rank: theirs})
        other.weights = replicas.pulled(other, half, theirs, {me.rank: mine})
        other.version += 1
        me.note(f"average with {other.rank}", "data communication", began)
    me.version += 1


def push_sum(team: Team) -> Story:
    """Stochastic gradient push (Assran et al. 2019, algorithm 1) on the directed exponential graph.

    In step k everyone sends half of (x, w) to the worker 2^k places on, keeps half and adds what
    arrives; the gradient is taken at z = x / w. With overlap (their OSGP) nobody waits for the
    message of its own step, but for that of the step before. What rounding a message to fp16 or
    int8 leaves out stays with its sender.
    """
    post, hops, n = team.post(), exponential_hops(len(team.workers)), len(team.workers)
    late = 1 if team.plan.overlap else 0

    def story(me: Worker, team: Team) -> Process:
        mass, me.push_weight = me.weights, 1.0
        for step in team.steps():
            gradient = yield from me.compute(step)
            yield from me.optimizer_pass()
            mass, me.state = me.rule.step(mass, gradient, me.state)
            yield from me.encode_part(1.0)
            half = team.plan.compression.lossy(0.5 * mass, (me.seed, step))
            mass, me.push_weight = mass - half, 0.5 * me.push_weight
            to, source = ((me.rank + way * hops[step % len(hops)]) % n for way in (1, -1))
            post.send(me.rank, [to], step, me.message, (half, me.push_weight))
            post.expect([source], me.rank, step)
            if step >= late:
                source = (me.rank - hops[(step - late) % len(hops)]) % n
                arrived = yield from _letter(me, post, source, step - late)
                if arrived is not None:
                    mass, me.push_weight = mass + arrived[0], me.push_weight + arrived[1]
                    yield from me.decode()
            me.weights = mass / me.push_weight
            _count(me, team, late)

    return story


def _letter(me: Worker, post: Post, source: int, step: int) -> Process:
    began = me.world.now
    value = yield from me.wait(post.read(source, me.rank, step), "communication")
    post.done(source, me.rank, step)
    me.note("receive", "data communication", began)
    return value


def random_pairs(team: Team) -> Story:
    """Every round all workers are paired at random; each steps, then averages with its partner.

    Boyd et al. 2006 (randomised gossip), in rounds. With an odd number one sits out.
    """
    post, replicas, pairs = team.post(), team.replicas(), [pairing(team, 0)]

    def story(me: Worker, team: Team) -> Process:
        for step in team.steps():
            gradient = yield from me.compute(step)
            yield from me.apply(gradient)
            while len(pairs) <= step:
                pairs.append(pairing(team, len(pairs)))
            partner = pairs[step].get(me.rank)
            if partner is not None:
                yield from me.encode_part(1.0)
                known = replicas.told(me.rank, partner, me.weights, step)
                post.send(me.rank, [partner], step, me.message, known)
                letters = yield from _letters(me, post, (partner,), step)
                half = {me.rank: 0.5, partner: 0.5}
                me.weights = replicas.pulled(me, half, known, letters)
            _count(me, team)

    return story


def pairing(team: Team, step: int) -> dict[int, int]:
    """Every worker's partner in a round of `random_pairs`."""
    order = [int(rank) for rank in team.choices(0, step).permutation(len(team.workers))]
    pairs = zip(order[::2], order[1::2], strict=False)
    return {a: b for one, other in pairs for a, b in ((one, other), (other, one))}


def _count(me: Worker, team: Team, staleness: int = 0) -> None:
    me.version += 1
    team.record.update(staleness, me.work.batch, team.average)
