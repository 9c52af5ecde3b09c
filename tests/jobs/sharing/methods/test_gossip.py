"""Gossip keeps the mean, mixes at the graph's rate, and loses nothing on the way."""

import numpy as np
import pytest

from sim.collectives.compression import Compression
from sim.jobs.sharing.graphs import graph as named
from sim.jobs.sharing.learning.task import Vector
from sim.jobs.sharing.run import build
from sim.jobs.sharing.tables import Fault, Learning, StragglerCause
from sim.jobs.sharing.workload import Workload
from sim.variability.laws import Constant
from tests.jobs.sharing.mixing import metropolis, second_eigenvalue
from tests.jobs.sharing.pools import (
    JITTER,
    QUADRATIC,
    RATE,
    SIZE,
    STEP,
    compressed,
    outcome,
    setup,
    trained,
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
    """Workers about to train: they begin with different weights and only gossip."""
    gossip = setup("gossip", workers=workers, task=Still(), **options)
    pool = build(gossip)
    for worker in pool.workers:
        worker.weights = np.array([float(worker.rank), float(worker.rank**2), 1.0])
    gossip.plan.start(pool)
    return pool


def distance(pool) -> float:
    held = np.array([worker.weights for worker in pool.workers])
    return float(np.linalg.norm(held - held.mean(axis=0)))


@pytest.mark.parametrize("algorithm", ["d_psgd", "ad_psgd", "random_pairs"])
def test_gossip_keeps_the_mean(algorithm):
    pool = scattered(algorithm=algorithm, straggler=JITTER)
    before = pool.average()
    pool.run()
    assert pool.average() == pytest.approx(before, rel=1e-12)


@pytest.mark.parametrize("kind", ["ring", "torus", "complete", "exponential", "star"])
def test_consensus_shrinks_no_slower_than_the_second_eigenvalue(kind):
    steps, slowest = 40, second_eigenvalue(metropolis(named(kind, 8)))
    pool = scattered(graph=kind, steps=steps)
    before = distance(pool)
    pool.run()
    assert distance(pool) <= before * slowest**steps * (1 + 1e-9) + 1e-12


def test_a_ring_mixes_asymptotically_at_its_second_eigenvalue():
    """No faster either: the ratio of two late distances is the eigenvalue."""
    late = []
    for steps in (30, 31):
        pool = scattered(graph="ring", steps=steps)
        pool.run()
        late.append(distance(pool))
    assert late[1] / late[0] == pytest.approx(
        second_eigenvalue(metropolis(named("ring", 8))), rel=1e-4
    )


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("stop", [0.05, 0.31, 1.03, 2.0])
def test_push_sum_weights_add_up_to_n_with_those_in_flight(overlap, stop):
    pool = scattered(algorithm="sgp", overlap=overlap, straggler=JITTER, workers=6)
    pool.cluster.run(pool.cluster.sleep(stop))
    flying = sum(weight for _, weight in pool.mailboxes.in_flight.values())
    assert sum(worker.push_weight for worker in pool.workers) + flying == pytest.approx(
        6.0, rel=1e-12
    )


def test_push_sum_reaches_the_mean():
    pool = scattered(algorithm="sgp", steps=60)
    before = pool.average()
    pool.run()
    for worker in pool.workers:
        assert worker.weights == pytest.approx(before, rel=1e-9)


@pytest.mark.parametrize("overlap", [False, True])
def test_noiseless_push_sum_finds_the_optimum(overlap):
    learning = Learning(task="quadratic", rate=0.3, noise=0.0, condition=2.0)
    result = outcome("gossip", algorithm="sgp", overlap=overlap, learning=learning, steps=200)
    assert result.loss < 1e-12


def test_overlap_hides_the_exchange_behind_the_gradient():
    exposed, hidden = (outcome("gossip", overlap=overlap).time for overlap in (False, True))
    exchange = 2 * SIZE / RATE  # both neighbours
    assert exposed == pytest.approx(20 * (STEP + exchange), rel=1e-6)
    assert hidden == pytest.approx(20 * max(STEP, exchange), rel=1e-6)


def test_a_pair_exchanges_both_ways_at_once():
    assert outcome("gossip", algorithm="random_pairs").time == pytest.approx(
        20 * (STEP + SIZE / RATE)
    )


def test_one_slow_worker_holds_back_its_neighbours_but_not_ad_psgd():
    slow = (StragglerCause(law=Constant(factor=5.0), ranks=(0,)),)
    bound = outcome("gossip", straggler=slow, workers=8, until=5.0)
    free = outcome("gossip", algorithm="ad_psgd", straggler=slow, workers=8, until=5.0)
    assert free.updates > 2 * bound.updates


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_all_algorithms_learn(algorithm):
    result = outcome("gossip", algorithm=algorithm, learning=QUADRATIC, steps=150, workers=8)
    assert result.curve[-1][2] < 0.25 * result.curve[0][2]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_others_go_on_when_one_fails_for_good(algorithm):
    fault = (Fault(rank=2, at=0.55),)
    pool = trained("gossip", algorithm=algorithm, fault=fault, workers=4)
    assert [worker.lost for worker in pool.workers] == [False, False, True, False]
    assert all(worker.steps > 20 for worker in pool.workers if not worker.lost)


@pytest.mark.parametrize("algorithm", ["d_psgd", "sgp", "random_pairs"])
def test_fluid_and_message_by_message_agree_within_a_percent(algorithm):
    options = dict(algorithm=algorithm, workers=8, steps=40, straggler=JITTER)
    fluid, each = (outcome("gossip", fluid=fluid, **options).time for fluid in (True, False))
    assert fluid == pytest.approx(each, rel=0.01)


@pytest.mark.few(4)
@pytest.mark.parametrize("kind", ["fp16", "int8", "fp4", "topk", "randomk", "powersgd", "onebit"])
@pytest.mark.parametrize("algorithm", ["d_psgd", "ad_psgd", "random_pairs"])
def test_compressed_gossip_keeps_the_mean_and_comes_together(algorithm, kind):
    """CHOCO-SGD: differences are sent, so that what is left out is not lost."""
    compression = compressed(kind, ratio=0.4, rank=1)
    options = dict(compression=compression, consensus=0.3, steps=200, straggler=JITTER)
    pool = scattered(algorithm=algorithm, **options)
    before, apart = pool.average(), distance(pool)
    pool.run()
    assert pool.average() == pytest.approx(before, rel=1e-9)
    assert distance(pool) < 0.02 * apart


def test_rounded_push_sum_loses_nothing():
    pool = scattered(algorithm="sgp", steps=60, compression=Compression(kind="int8"))
    before = pool.average()
    pool.run()
    total = sum(worker.weights * worker.push_weight for worker in pool.workers)
    total = total + sum(mass for mass, _ in pool.mailboxes.in_flight.values())
    assert total / 8 == pytest.approx(before, rel=1e-9)


def test_coding_gossip_takes_time():
    plain, coded = (outcome("gossip", compression=Compression(kind=k)) for k in ("none", "onebit"))
    assert plain.shares["compression"] == 0.0 < coded.shares["compression"]
    assert coded.bytes < plain.bytes / 30


def test_with_a_rendezvous_a_message_waits_for_its_receiver():
    """The slow one's partner has sent long before: its message is there, or only now leaves."""
    slow = (StragglerCause(law=Constant(factor=3.0), ranks=(1,)),)
    options = dict(algorithm="random_pairs", workers=2, steps=1, straggler=slow)
    at_once, awaited = (outcome("gossip", rendezvous=r, **options) for r in (False, True))
    seconds = [
        [result.time * row["communication"] for row in result.workers]
        for result in (at_once, awaited)
    ]
    assert seconds[0] == pytest.approx([SIZE / RATE, 0.0])
    assert seconds[1] == pytest.approx([SIZE / RATE, SIZE / RATE])


@pytest.mark.parametrize("algorithm", ["d_psgd", "sgp"])
def test_with_overlap_receivers_are_ready_before_they_compute(algorithm):
    options = dict(algorithm=algorithm, overlap=True, workers=4)
    early, awaited = (outcome("gossip", rendezvous=r, **options).time for r in (False, True))
    assert awaited == pytest.approx(early, rel=1e-9)


def test_nobody_averages_with_one_that_is_gone():
    options = dict(algorithm="ad_psgd", graph="complete", workers=4, learning=QUADRATIC)
    pool = trained("gossip", fault=(Fault(rank=2, at=0.0),), **options)
    dead = pool.workers[2]
    assert dead.version == 0
    assert np.array_equal(dead.weights, pool.task.start)
    alive = [worker.weights for worker in pool.workers if not worker.lost]
    assert pool.average() == pytest.approx(np.mean(alive, axis=0))


@pytest.mark.parametrize(
    ("algorithm", "geometric"),
    [("d_psgd", False), ("random_pairs", False), ("ad_psgd", False), ("ad_psgd", True)],
)
def test_with_local_steps_gossip_keeps_the_mean_and_comes_together(algorithm, geometric):
    """SwarmSGD's pair average is (x_i + x_j) / 2 for both, whatever they are at."""
    options = dict(algorithm=algorithm, period=3, geometric=geometric, steps=240)
    pool = scattered(straggler=JITTER, **options)
    before, apart = pool.average(), distance(pool)
    pool.run()
    assert pool.average() == pytest.approx(before, rel=1e-12)
    assert distance(pool) < 0.01 * apart


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_period_sends_once_for_so_many_steps(algorithm):
    often, seldom = (outcome("gossip", algorithm=algorithm, period=h, steps=20) for h in (1, 5))
    assert seldom.samples == often.samples
    assert seldom.bytes == pytest.approx(often.bytes / 5, rel=0.05)
    exchange = (often.time - 20 * STEP) / 20
    if algorithm != "ad_psgd":  # whose pairs meet on the links as chance has it
        assert seldom.time == pytest.approx(20 * STEP + 4 * exchange, rel=0.01)


def test_a_geometric_number_of_steps_has_the_mean_of_the_period():
    pool = trained("gossip", algorithm="ad_psgd", period=4, geometric=True, steps=400)
    averages = pool.record.updates  # one for every round of one worker
    steps = sum(worker.steps for worker in pool.workers)
    assert steps / averages == pytest.approx(4.0, rel=0.1)


@pytest.mark.parametrize("period", [1, 2, 4])
def test_overlapped_push_sum_has_tau_steps_for_a_message(period):
    """tau-overlap SGP: a round takes max(tau x step, T), where T is the message's time."""
    sent = 3 * STEP
    large = Workload.plain(STEP, sent * RATE / 4)
    keys = dict(algorithm="sgp", overlap=True, period=period, steps=20, workload=large)
    run = outcome("gossip", **keys)
    assert run.time == pytest.approx(20 / period * max(period * STEP, sent), rel=1e-6)


@pytest.mark.parametrize(
    ("options", "title"),
    [
        ({"algorithm": "ad_psgd", "period": 3}, "gossip (SwarmSGD, 3 local steps)"),
        ({"algorithm": "sgp", "overlap": True}, "gossip (push-sum, overlapped)"),
        (
            {"algorithm": "ad_psgd", "period": 3, "geometric": True},
            "gossip (SwarmSGD, 3 local steps in the mean)",
        ),
    ],
)
def test_gossip_is_named_by_its_paper(options, title):
    assert setup("gossip", **options).plan.title == title


def test_a_geometric_number_needs_a_mean():
    with pytest.raises(ValueError, match="geometric would have no effect with period = 1"):
        setup("gossip", geometric=True)
