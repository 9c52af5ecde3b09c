"""Local SGD, DiLoCo, asynchronous local SGD and federated rounds."""

from itertools import pairwise

import numpy as np
import pytest

from sim.engine.routes import Regions
from sim.jobs.sharing.learning.numpy_tasks import Quadratic
from sim.jobs.sharing.tables import Fault, Learning, StragglerCause
from sim.variability.laws import Constant
from tests.jobs.sharing.pools import JITTER, QUADRATIC, STEP, outcome, trained

TASK = Quadratic(size=5, noise=0.3, unlike=0.5, workers=4, batch=32)


def test_diloco_with_one_inner_step_and_plain_outer_sgd_is_data_parallel():
    data_parallel = trained("all_reduce", learning=QUADRATIC, task=TASK)
    options = dict(period=1, outer_rate=1.0, outer_momentum=0.0, nesterov=False)
    diloco = trained("local_sgd", learning=QUADRATIC, task=TASK, **options)
    assert diloco.workers[0].weights == pytest.approx(data_parallel.workers[0].weights, rel=1e-12)
    assert diloco.cluster.now == data_parallel.cluster.now


def test_with_an_outer_momentum_it_is_not():
    data_parallel = trained("all_reduce", learning=QUADRATIC, task=TASK).workers[0].weights
    options = {"nesterov": True, "outer_momentum": 0.9}
    other = trained("local_sgd", learning=QUADRATIC, task=TASK, **options).workers[0].weights
    assert not np.allclose(other, data_parallel, rtol=1e-3)


def test_a_longer_period_communicates_less_and_takes_less_time():
    often, seldom = (outcome("local_sgd", period=period) for period in (1, 10))
    assert seldom.bytes == pytest.approx(often.bytes / 10, rel=1e-9)
    assert 20 * STEP < seldom.time < often.time


def test_local_steps_average_out_stragglers():
    """max over workers of a sum is less than the sum of the maxima."""
    often, seldom = (
        outcome("local_sgd", period=period, straggler=JITTER, steps=100).straggler_seconds
        for period in (1, 20)
    )
    assert seldom < 0.5 * often


def test_diloco_hides_a_slow_way_between_regions():
    wide = Regions(nodes=2, bandwidth=125e6, latency=0.05)  # 1 Gbit/s
    every_step = outcome("all_reduce", regions=wide)
    diloco = outcome("local_sgd", period=20, nesterov=True, outer_momentum=0.9, regions=wide)
    assert diloco.time < 0.5 * every_step.time
    assert every_step.links[0]["link"].startswith("region")


def test_delayed_nesterov_of_one_arrival_is_nesterov_momentum():
    """N = 1: m <- beta m + d, w <- w - rate (beta m + d)."""
    options = dict(period=2, steps=10, workers=1, outer_rate=0.7, outer_momentum=0.5, delay=1)
    task = Quadratic(size=5, noise=0.3, workers=1, batch=32)
    pool = trained("async_local_sgd", learning=QUADRATIC, task=task, **options)
    weights, moment = task.start, np.zeros(5)
    for turn in range(5):
        local = weights
        for step in (2 * turn, 2 * turn + 1):
            local = local - QUADRATIC.rate * task.gradient(local, 0, step)
        delta = weights - local
        moment = 0.5 * moment + delta
        weights = weights - 0.7 * (0.5 * moment + delta)
    assert pool.server.weights == pytest.approx(weights, rel=1e-12)


def test_dynamic_local_updates_give_the_slow_fewer_steps():
    slow = (StragglerCause(law=Constant(factor=4.0), ranks=(0,)),)
    options = dict(period=8, steps=80, straggler=slow)
    fixed = outcome("async_local_sgd", **options)
    dynamic = outcome("async_local_sgd", dynamic=True, **options)
    rounds = [
        {span.end for span in result.timeline.spans if span.role == 0 and span.name == "push"}
        for result in (fixed, dynamic)
    ]
    assert len(rounds[1]) > 3 * len(rounds[0])  # as often as the others
    assert dynamic.workers[0]["steps"] == pytest.approx(fixed.workers[0]["steps"], abs=8)


def test_asynchronous_local_sgd_learns_with_momentum_that_waits():
    learning = Learning(task="quadratic", rate=0.05, noise=0.05)
    result = outcome(
        "async_local_sgd", period=5, steps=300, delay=4, outer_momentum=0.5, learning=learning
    )
    assert result.curve[-1][2] < 0.1 * result.curve[0][2]


def test_a_federated_round_is_as_long_as_its_slowest_participant():
    slow = (StragglerCause(law=Constant(factor=3.0), ranks=(2,)),)
    result = outcome("federated", period=5, steps=20, straggler=slow)
    assert result.updates == 4
    assert result.time > 4 * 5 * 3 * STEP


def test_federated_rounds_that_do_not_wait_for_the_late_are_shorter():
    slow = (StragglerCause(law=Constant(factor=3.0), ranks=(2,)),)
    all_of_them = outcome("federated", period=5, steps=40, straggler=slow)
    without = outcome("federated", period=5, steps=40, straggler=slow, late=0.25)
    assert without.time < 0.7 * all_of_them.time


def test_a_fraction_takes_part():
    result = outcome("federated", period=5, steps=20, workers=8, fraction=0.25)
    assert result.samples == 8 * 20
    assert result.updates == 8 * 20 / (5 * 2)


def test_unequal_hosts_do_steps_and_count_in_proportion_to_their_data():
    """1 : 1/2 : 1/3, the mean host 11 steps; the mean of their changes has the same weights."""
    options = dict(period=11, steps=11, workers=3, unequal=1.0, learning=QUADRATIC)
    task = Quadratic(size=5, noise=0.3, unlike=0.5, workers=3, batch=32)
    pool = trained("federated", task=task, **options)
    assert [worker.steps for worker in pool.workers] == [18, 9, 6]
    changes = []
    for rank, steps in enumerate((18, 9, 6)):
        weights = task.start
        for step in range(steps):
            weights = weights - QUADRATIC.rate * task.gradient(weights, rank, step)
        changes.append(weights)
    expected = (6 * changes[0] + 3 * changes[1] + 2 * changes[2]) / 11
    assert pool.server.weights == pytest.approx(expected, rel=1e-12)


def test_a_host_that_is_late_is_in_no_other_round_meanwhile():
    slow = (StragglerCause(law=Constant(factor=3.5), ranks=(2,)),)
    result = outcome("federated", period=5, steps=60, straggler=slow, late=0.25)
    passes = sorted((s.start, s.end) for s in result.timeline.spans if s.role == 2)
    assert all(before[1] <= after[0] + 1e-9 for before, after in pairwise(passes))
    assert result.dropped > 1


def test_a_host_that_goes_offline_loses_its_part_of_the_round():
    options = dict(period=20, steps=400, workers=8, learning=QUADRATIC)
    result = outcome("federated", online=3.0, offline=1.0, **options)
    assert result.dropped > 10
    assert outcome("federated", **options).dropped == 0


def test_hosts_that_come_and_go_are_chosen_only_while_they_are_there():
    options = dict(period=5, until=60.0, workers=8, learning=QUADRATIC)
    always = outcome("federated", **options)
    some = outcome("federated", online=2.0, offline=4.0, **options)
    steps = [sum(row["steps"] for row in result.workers) for result in (always, some)]
    assert steps[1] < 0.8 * steps[0]


def test_a_round_goes_on_without_a_host_that_fails_for_good():
    pool = trained("federated", period=5, steps=20, fault=(Fault(rank=1, at=0.7),))
    assert pool.record.updates == 5  # 4 x 20 steps; of the first round three answers
