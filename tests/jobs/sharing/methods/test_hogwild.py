"""Hogwild: a host's memory, no locks, reads that are no snapshots."""

import numpy as np
import pytest

from sim.config.errors import InputError
from sim.jobs.sharing.learning.numpy_tasks import Quadratic
from sim.jobs.sharing.run import build
from sim.jobs.sharing.tables import Learning
from sim.jobs.sharing.workload import Workload
from tests.jobs.sharing.pools import (
    JITTER,
    MEMORY,
    QUADRATIC,
    SIZE,
    STEP,
    hosts,
    outcome,
    setup,
    trained,
)

TASK = Quadratic(size=8, noise=0.3, workers=4, batch=32)


def large() -> Workload:
    """A step of 40 times the weights."""
    return Workload.plain(STEP, 40 * SIZE / 4)


def ran(workers: int = 4, **options):
    return outcome("hogwild", workers=workers, **options)


@pytest.mark.parametrize("touched", [1.0, 0.1])
def test_one_worker_reads_computes_and_writes(touched):
    run = ran(1, touched=touched)
    assert run.time == pytest.approx(20 * (STEP + 3 * touched * SIZE / MEMORY), rel=1e-6)
    assert run.bytes == pytest.approx(20 * 3 * touched * SIZE, rel=1e-9)


def test_sparse_steps_do_not_hold_each_other_up_and_dense_ones_share_the_memory():
    """B / (3 touched S) steps a second are the most, however many workers there are."""
    most = MEMORY / (3 * 40 * SIZE)
    dense = ran(8, workload=large(), straggler=JITTER)
    assert 0.95 * most < dense.updates_per_second <= most * (1 + 1e-9)
    sparse = ran(8, workload=large(), touched=0.001, straggler=JITTER)
    assert sparse.updates_per_second == pytest.approx(8 / STEP, rel=0.1)


def test_one_worker_is_plain_sgd():
    pool = trained("hogwild", workers=1, learning=QUADRATIC, task=TASK)
    weights = TASK.start
    for step in range(20):
        weights = weights - QUADRATIC.rate * TASK.gradient(weights, 0, step)
    assert pool.shared.weights == pytest.approx(weights, rel=1e-12)
    assert set(pool.record.staleness) == {0}


def test_a_read_may_mix_versions():
    """While one reads piece by piece, others write: some reads are of no version that there was."""
    seen, versions = [], []

    class Watched(Quadratic):
        def gradient(self, weights, rank, step):
            seen.append(weights)
            return super().gradient(weights, rank, step)

    keys = dict(workload=large(), straggler=JITTER, learning=QUADRATIC)
    task = Watched(size=8, noise=0.3, workers=4, batch=32)
    built = setup("hogwild", task=task, **keys)
    pool = build(built)
    merge = pool.shared.merge

    def watched(*args, **options):
        merge(*args, **options)
        versions.append(pool.shared.weights)

    pool.shared.merge = watched
    built.plan.start(pool)
    pool.run()
    whole = [TASK.start, *versions]
    torn = [w for w in seen if not any(np.array_equal(w, version) for version in whole)]
    assert torn
    for weights in torn:  # every element is of some version
        assert all(any(w == version[i] for version in whole) for i, w in enumerate(weights))


def test_it_learns_though_nobody_locks():
    learning = Learning(task="quadratic", rate=0.05, noise=0.05)
    run = ran(8, steps=200, straggler=JITTER, learning=learning)
    assert run.loss < 0.05 * run.curve[0][2]
    assert run.staleness["mean"] > 4


def test_sparse_gradients_touch_their_share():
    pool = trained(
        "hogwild", workers=1, steps=1, touched=0.25,
        learning=QUADRATIC, task=Quadratic(size=400, noise=0.0),
    )  # fmt: skip
    assert np.mean(pool.shared.weights != 0.0) == pytest.approx(0.25, abs=0.06)


def test_several_hosts_share_no_memory():
    with pytest.raises(InputError, match="share no memory; use fewer workers"):
        outcome("hogwild", workers=4, machine=hosts())


def test_a_topology_without_hosts_is_refused():
    with pytest.raises(InputError, match="hogwild needs hosts"):
        outcome("hogwild", workers=1, machine=hosts())
