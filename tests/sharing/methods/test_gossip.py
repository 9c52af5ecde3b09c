"""Gossip keeps the mean, mixes at the graph's rate, and loses nothing on the way."""

import numpy as np
import pytest

from sim.collectives.compression import Compression
from sim.sharing.graphs import graph as named
from sim.sharing.graphs import metropolis, second_eigenvalue
from sim.sharing.learning.task import Vector
from sim.sharing.plan import Fault, Learning, StragglerCause
from sim.sharing.run import METHODS, build, stage
from sim.variability.laws import Constant
from tests.sharing.teams import (
    JITTER,
    QUADRATIC,
    RATE,
    SIZE,
    STEP,
    hosts,
    lived,
    plan,
    played,
    work,
)

ALGORITHMS = ("d_psgd", "ad_psgd", "sgp", "random_pairs")


class Still:
    """A task without gradients: only averaging changes anything."""

    name, start = "still", np.zeros(3)

    def gradient(self, weights: Vector, rank: int, step: int) -> Vector:
        return np.zeros_like(weights)

    def loss(self, weights: Vector) -> float:
        return 0.0


def scattered(workers: int = 8, **options):
    """Workers that begin with different weights and only gossip."""
    team = build(stage(plan("gossip", workers=workers, **options), hosts(), work(), task=Still()))
    for me in team.workers:
        me.weights = np.array([float(me.rank), float(me.rank**2), 1.0])
    return team


def distance(team) -> float:
    held = np.array([me.weights for me in team.workers])
    return float(np.linalg.norm(held - held.mean(axis=0)))


@pytest.mark.parametrize("algorithm", ["d_psgd", "ad_psgd", "random_pairs"])
def test_gossip_keeps_the_mean(algorithm):
    team = scattered(algorithm=algorithm, straggler=JITTER)
    before = team.average()
    METHODS["gossip"](team)
    team.world.run()
    assert team.average() == pytest.approx(before, rel=1e-12)


@pytest.mark.parametrize("kind", ["ring", "torus", "complete", "exponential", "star"])
def test_consensus_shrinks_no_slower_than_the_second_eigenvalue(kind):
    steps, slowest = 40, second_eigenvalue(metropolis(named(kind, 8)))
    team = scattered(graph=kind, steps=steps)
    before = distance(team)
    METHODS["gossip"](team)
    team.world.run()
    assert distance(team) <= before * slowest**steps * (1 + 1e-9) + 1e-12


def test_a_ring_mixes_asymptotically_at_its_second_eigenvalue():
    """No faster either: the ratio of two late distances is the eigenvalue."""
    late = []
    for steps in (30, 31):
        team = scattered(graph="ring", steps=steps)
        METHODS["gossip"](team)
        team.world.run()
        late.append(distance(team))
    assert late[1] / late[0] == pytest.approx(
        second_eigenvalue(metropolis(named("ring", 8))), rel=1e-4
    )


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("stop", [0.05, 0.31, 1.03, 2.0])
def test_push_sum_weights_add_up_to_n_with_those_in_flight(overlap, stop):
    team = scattered(algorithm="sgp", overlap=overlap, straggler=JITTER, workers=6)
    METHODS["gossip"](team)
    team.world.run(team.world.sleep(stop))
    flying = sum(weight for _, weight in team.letters.in_flight.values())
    assert sum(me.push_weight for me in team.workers) + flying == pytest.approx(6.0, rel=1e-12)


def test_push_sum_reaches_the_mean():
    team = scattered(algorithm="sgp", steps=60)
    before = team.average()
    METHODS["gossip"](team)
    team.world.run()
    for me in team.workers:
        assert me.weights == pytest.approx(before, rel=1e-9)


@pytest.mark.parametrize("overlap", [False, True])
def test_noiseless_push_sum_finds_the_optimum(overlap):
    learning = Learning(task="quadratic", rate=0.3, noise=0.0, condition=2.0)
    outcome = played("gossip", algorithm="sgp", overlap=overlap, learning=learning, steps=200)
    assert outcome.loss < 1e-12


def test_overlap_hides_the_exchange_behind_the_gradient():
    exposed, hidden = (played("gossip", overlap=overlap).time for overlap in (False, True))
    exchange = 2 * SIZE / RATE  # both neighbours
    assert exposed == pytest.approx(20 * (STEP + exchange), rel=1e-6)
    assert hidden == pytest.approx(20 * max(STEP, exchange), rel=1e-6)


def test_a_pair_exchanges_both_ways_at_once():
    assert played("gossip", algorithm="random_pairs").time == pytest.approx(
        20 * (STEP + SIZE / RATE)
    )


def test_one_slow_worker_holds_back_its_neighbours_but_not_ad_psgd():
    slow = (StragglerCause(law=Constant(factor=5.0), ranks=(0,)),)
    bound = played("gossip", straggler=slow, workers=8, until=5.0)
    free = played("gossip", algorithm="ad_psgd", straggler=slow, workers=8, until=5.0)
    assert free.updates > 2 * bound.updates


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_all_algorithms_learn(algorithm):
    outcome = played("gossip", algorithm=algorithm, learning=QUADRATIC, steps=150, workers=8)
    assert outcome.curve[-1][2] < 0.25 * outcome.curve[0][2]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_others_go_on_when_one_fails_for_good(algorithm):
    fault = (Fault(rank=2, at=0.55),)
    team = lived("gossip", algorithm=algorithm, fault=fault, workers=4)
    assert [me.gone for me in team.workers] == [False, False, True, False]
    assert all(me.steps == 20 for me in team.workers if not me.gone)


@pytest.mark.parametrize("algorithm", ["d_psgd", "sgp", "random_pairs"])
def test_fluid_and_message_by_message_agree_within_a_percent(algorithm):
    options = dict(algorithm=algorithm, workers=8, steps=40, straggler=JITTER)
    fluid, each = (played("gossip", fluid=fluid, **options).time for fluid in (True, False))
    assert fluid == pytest.approx(each, rel=0.01)


@pytest.mark.parametrize("kind", ["fp16", "int8", "topk", "randomk", "powersgd", "onebit"])
@pytest.mark.parametrize("algorithm", ["d_psgd", "ad_psgd", "random_pairs"])
def test_compressed_gossip_keeps_the_mean_and_comes_together(algorithm, kind):
    """CHOCO-SGD: differences are sent, so that what is left out is not lost."""
    compression = Compression(kind=kind, ratio=0.4, rank=1)
    options = dict(compression=compression, consensus=0.3, steps=200, straggler=JITTER)
    team = scattered(algorithm=algorithm, **options)
    before, apart = team.average(), distance(team)
    METHODS["gossip"](team)
    team.world.run()
    assert team.average() == pytest.approx(before, rel=1e-9)
    assert distance(team) < 0.02 * apart


def test_rounded_push_sum_loses_nothing():
    team = scattered(algorithm="sgp", steps=60, compression=Compression(kind="int8"))
    before = team.average()
    METHODS["gossip"](team)
    team.world.run()
    total = sum(me.weights * me.push_weight for me in team.workers)
    total = total + sum(mass for mass, _ in team.letters.in_flight.values())
    assert total / 8 == pytest.approx(before, rel=1e-9)


def test_coding_gossip_takes_time():
    none, some = (played("gossip", compression=Compression(kind=k)) for k in ("none", "onebit"))
    assert none.shares["compression"] == 0.0 < some.shares["compression"]
    assert some.bytes < none.bytes / 30


def test_with_a_rendezvous_a_letter_waits_for_its_reader():
    """The slow one's partner has written long before: its letter is there, or only now leaves."""
    slow = (StragglerCause(law=Constant(factor=3.0), ranks=(1,)),)
    options = dict(algorithm="random_pairs", workers=2, steps=1, straggler=slow)
    at_once, awaited = (lived("gossip", rendezvous=r, **options) for r in (False, True))
    there = 3 * STEP + SIZE / RATE
    assert [me.ended for me in at_once.workers] == pytest.approx([there, 3 * STEP])
    assert [me.ended for me in awaited.workers] == pytest.approx([there, there])


@pytest.mark.parametrize("algorithm", ["d_psgd", "sgp"])
def test_with_overlap_readers_are_ready_before_they_compute(algorithm):
    options = dict(algorithm=algorithm, overlap=True, workers=4)
    early, awaited = (played("gossip", rendezvous=r, **options).time for r in (False, True))
    assert awaited == pytest.approx(early, rel=1e-9)


def test_nobody_averages_with_one_that_is_gone():
    options = dict(algorithm="ad_psgd", graph="complete", workers=4, learning=QUADRATIC)
    team = lived("gossip", fault=(Fault(rank=2, at=0.0),), **options)
    dead = team.workers[2]
    assert dead.version == 0
    assert np.array_equal(dead.weights, team.task.start)
    alive = [me.weights for me in team.workers if not me.gone]
    assert team.average() == pytest.approx(np.mean(alive, axis=0))
