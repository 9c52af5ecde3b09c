"""Stale gradients: equal to synchronous training without delay, and stable as theory says."""

from math import pi, sin

import numpy as np
import pytest

from scenarios.pipedream_staleness import stale_weights
from sim.jobs.sharing.learning.numpy_tasks import Logistic, Quadratic
from sim.jobs.sharing.learning.optimizers import Optimizer


def test_without_staleness_it_is_synchronous_training():
    task, rule = Logistic(size=8), Optimizer(rule="momentum", rate=0.05)
    weights, state = task.start, rule.start(len(task.start))
    for step, own in enumerate(stale_weights(task, rule, (0, 0, 0), 20)):
        weights, state = rule.step(weights, task.gradient(weights, 0, step), state)
        np.testing.assert_array_equal(own, weights)


@pytest.mark.parametrize("late", [0, 1, 3, 7])
def test_rates_are_stable_up_to_the_bound_of_delayed_gradients(late):
    """w(t+1) = w(t) - r w(t-d) converges for r < 2 sin(pi / (4 d + 2)) (Levin and May 1976)."""
    task = Quadratic(size=4, condition=1.0, noise=0.0)
    limit = 2.0 * sin(pi / (4 * late + 2))
    ends = []
    for rate in (0.9 * limit, 1.1 * limit):
        *_, last = stale_weights(task, Optimizer(rate=rate), (late,), 1000)
        ends.append(task.loss(last))
    assert ends[0] < 1e-6 * task.loss(task.start)
    assert ends[1] > task.loss(task.start)


def test_later_stages_of_pipedream_bear_rates_that_earlier_ones_do_not():
    """Stage s is p-s-1 updates late: the same rate diverges on the first and not on the last."""
    task = Quadratic(size=8, condition=1.0, noise=0.0)
    rate = 1.0
    *_, last = stale_weights(task, Optimizer(rate=rate), (3, 2, 1, 0), 100)
    off = np.abs(last - 1.0).reshape(4, 2).max(axis=1)
    assert off[0] > 1.0 > off[3]
    assert off[3] == 0.0


def test_the_later_gradients_come_the_more_updates_the_best_rate_needs():
    """No delay against PipeDream-2BW's and PipeDream's of eight stages, each at its best rate."""
    task = Quadratic(size=16, condition=1.0, noise=0.0)
    target = 1e-3 * task.loss(task.start)

    def settled(late: tuple[int, ...], rate: float) -> int:
        """After how many updates the loss stays below the target."""
        losses = map(task.loss, stale_weights(task, Optimizer(rate=rate), late, 200))
        return max((n for n, loss in enumerate(losses, 1) if loss >= target), default=0)

    plain, double_buffered, pipedream = (
        min(settled(late, rate) for rate in np.geomspace(0.02, 2.0, 40))
        for late in ((0,), (1,), tuple(range(7, -1, -1)))
    )
    assert plain < double_buffered < pipedream < 200
