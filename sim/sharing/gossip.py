"""Gossip: workers average with a few neighbours; nobody holds the weights of all."""

import numpy as np
from numpy.typing import NDArray

from sim.engine.processes import Process
from sim.graphs import exponential_hops, graph, mixing
from sim.sharing.meeting import Post
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
    post = team.post()
    neighbours = graph(team.plan.graph, len(team.workers))
    rows = mixing(neighbours)

    def story(me: Worker, team: Team) -> Process:
        beside = neighbours[me.rank]
        for step in team.steps():
            if team.plan.overlap:
                post.send(me.rank, beside, step, me.message, me.weights)
            gradient = yield from me.compute(step)
            if not team.plan.overlap:
                post.send(me.rank, beside, step, me.message, me.weights)
            letters = yield from _letters(me, post, beside, step)
            me.weights = mixed(rows[me.rank], me.rank, me.weights, letters)
            yield from me.apply(gradient)
            _count(me, team)

    return story


def _letters(me: Worker, post: Post, beside: tuple[int, ...], step: int) -> Process:
    """What the neighbours have written; those that are gone write nothing."""
    found: dict[int, Vector] = {}
    for other in beside:
        value = yield from _letter(me, post, other, step)
        if value is not None:
            found[other] = value
    return found


def mixed(row: dict[int, float], own: int, mine: Vector, theirs: dict[int, Vector]) -> Vector:
    """sum_j W_ij x_j; the weight of those that are missing is the worker's own."""
    kept = row[own] + sum(weight for j, weight in row.items() if j != own and j not in theirs)
    total = kept * mine
    for j in sorted(theirs):
        total = total + row[j] * theirs[j]
    return total


def ad_psgd(team: Team) -> Story:
    """Step, and average with one random neighbour, atomically (Lian et al. 2018, algorithm 1).

    The neighbour is not asked and does not stop computing: its gradient was taken on weights that
    have changed since. With overlap the exchange runs beside the gradient.
    """
    neighbours = graph(team.plan.graph, len(team.workers))

    def story(me: Worker, team: Team) -> Process:
        choices = team.choices(me.rank)
        for step in team.steps():
            read = me.version
            other = team.workers[choices.choice(neighbours[me.rank])]
            meeting = team.world.start(_averaged(me, other)) if team.plan.overlap else None
            gradient = yield from me.compute(step)
            yield from me.wait(meeting or team.world.start(_averaged(me, other)), "communication")
            yield from me.apply(gradient)
            team.record.update(me.version - read - 1, me.work.batch, team.average)

    return story


def _averaged(me: Worker, other: Worker) -> Process:
    began = me.world.now
    yield me.world.swap(me.message, me.place, other.place)
    me.weights = other.weights = 0.5 * (me.weights + other.weights)
    me.version += 1
    other.version += 1
    me.note(f"average with {other.rank}", "data communication", began)


def push_sum(team: Team) -> Story:
    """Stochastic gradient push (Assran et al. 2019, algorithm 1) on the directed exponential graph.

    In step k everyone sends half of (x, w) to the worker 2^k places on, keeps half and adds what
    arrives; the gradient is taken at z = x / w. With overlap (their OSGP) nobody waits for the
    message of its own step, but for that of the step before.
    """
    post, hops, n = team.post(), exponential_hops(len(team.workers)), len(team.workers)
    late = 1 if team.plan.overlap else 0

    def story(me: Worker, team: Team) -> Process:
        mass, me.push_weight = me.weights, 1.0
        for step in team.steps():
            gradient = yield from me.compute(step)
            yield from me.optimizer_pass()
            mass, me.state = me.rule.step(mass, gradient, me.state)
            mass, me.push_weight = 0.5 * mass, 0.5 * me.push_weight
            to = (me.rank + hops[step % len(hops)]) % n
            post.send(me.rank, [to], step, me.message, (mass, me.push_weight))
            if step >= late:
                source = (me.rank - hops[(step - late) % len(hops)]) % n
                arrived = yield from _letter(me, post, source, step - late)
                if arrived is not None:
                    mass, me.push_weight = mass + arrived[0], me.push_weight + arrived[1]
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
    post, pairs = team.post(), [pairing(team, 0)]

    def story(me: Worker, team: Team) -> Process:
        for step in team.steps():
            gradient = yield from me.compute(step)
            yield from me.apply(gradient)
            while len(pairs) <= step:
                pairs.append(pairing(team, len(pairs)))
            partner = pairs[step].get(me.rank)
            if partner is not None:
                post.send(me.rank, [partner], step, me.message, me.weights)
                letters = yield from _letters(me, post, (partner,), step)
                me.weights = mixed({me.rank: 0.5, partner: 0.5}, me.rank, me.weights, letters)
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
