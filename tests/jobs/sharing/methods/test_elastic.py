"""EASGD: a spring pulls both ends alike."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.config.errors import InputError
from sim.jobs.sharing.learning.numpy_tasks import Quadratic
from sim.jobs.sharing.run import build
from sim.jobs.sharing.tables import Learning
from tests.jobs.sharing.pools import (
    QUADRATIC,
    RATE,
    SIZE,
    STEP,
    compressed,
    outcome,
    plan,
    setup,
    trained,
)


class Still(Quadratic):
    """A task without gradients: only springs move anything."""

    def gradient(self, weights, rank, step):
        return np.zeros_like(weights)


@settings(max_examples=30, deadline=None)
@given(
    period=st.integers(1, 4),
    rate=st.floats(0.1, 4.0),
    kind=st.sampled_from(("none", "fp16", "topk")),
    seed=st.integers(0, 9),
)
def test_the_sum_of_workers_and_centre_is_kept(period, rate, kind, seed):
    """x_i gives what the centre takes, also where only a part of it is sent: looked at in the
    first step of the fourth round, when nothing is on its way."""
    compression = replace(compressed(kind, ratio=0.4), feedback=False)
    sent = compression.bytes(SIZE / 4)
    looked = 3 * (period * STEP + 4 * (SIZE + sent) / RATE) + 0.5 * STEP
    keys = dict(period=period, moving_rate=rate, compression=compression, until=looked)
    springs = setup("elastic", task=Still(size=6), learning=QUADRATIC, **keys)
    pool = build(springs)
    springs.plan.start(pool)
    for worker, weights in zip(
        pool.workers, np.random.default_rng(seed).standard_normal((4, 6)), strict=True
    ):
        worker.weights = weights
    total = sum(worker.weights for worker in pool.workers) + pool.server.weights
    pool.run()
    assert pool.server.version == 3 * 4
    left = sum(worker.weights for worker in pool.workers) + pool.server.weights
    assert left == pytest.approx(total, rel=1e-9, abs=1e-12)
    assert np.any(pool.server.weights)


def test_one_exchange_is_symmetric():
    """After a whole number of rounds of one worker nothing is on its way."""
    springs = setup("elastic", workers=1, steps=6, period=2, moving_rate=0.3, task=Still(size=6))
    pool = build(springs)
    springs.plan.start(pool)
    pool.workers[0].weights = np.arange(6.0)
    pool.run()
    assert pool.workers[0].weights + pool.server.weights == pytest.approx(np.arange(6.0), rel=1e-12)
    apart = pool.workers[0].weights - pool.server.weights
    assert apart == pytest.approx((1 - 2 * 0.3) ** 3 * np.arange(6.0), rel=1e-12)


def test_a_round_takes_its_steps_a_fetch_and_a_push():
    run = outcome("elastic", workers=1, period=4, steps=20)
    assert run.time == pytest.approx(20 * STEP + 5 * 2 * SIZE / RATE, rel=1e-6)
    assert run.bytes == pytest.approx(5 * 2 * 2 * SIZE, rel=1e-9)


def test_the_algorithm_written_out_for_one_worker():
    task = Quadratic(size=5, noise=0.3, workers=1, batch=32)
    learning = Learning(task="quadratic", rate=0.05, noise=0.3)
    pool = trained("elastic", workers=1, period=2, steps=8, learning=learning, task=task)
    own, centre = task.start, task.start
    for step in range(8):
        own = own - 0.05 * task.gradient(own, 0, step)
        if step % 2:
            drawn = 0.9 * (own - centre)
            own, centre = own - drawn, centre + drawn
    assert pool.server.weights == pytest.approx(centre, rel=1e-12)


def test_the_centre_learns_and_workers_stay_around_it():
    run = outcome("elastic", period=4, steps=400, learning=QUADRATIC)
    assert run.loss < 0.05 * run.curve[0][2]
    assert run.spread["distance"] > 0.0


def test_a_stronger_spring_holds_workers_closer():
    far, near = (
        outcome("elastic", period=4, steps=200, moving_rate=rate, learning=QUADRATIC).spread[
            "distance"
        ]
        for rate in (0.1, 2.0)
    )
    assert near < 0.7 * far


def test_workers_keep_the_centre_and_servers_no_momentum():
    assert plan("elastic").kept(1e6, 4.0, 8) == {"centre": 4e6}
    assert plan("elastic").kept_by_server(1e6, 8) == {}


def test_a_spring_that_overshoots_is_refused():
    with pytest.raises(InputError, match="past the centre; set it to at most 4"):
        outcome("elastic", moving_rate=5.0)
