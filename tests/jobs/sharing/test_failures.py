"""Workers that fail, return, or never return, with every method."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import sim
from sim.config.errors import InputError
from sim.jobs.sharing.run import build
from sim.jobs.sharing.tables import Fault, Recovery
from tests.jobs.sharing.pools import JITTER, QUADRATIC, RATE, SIZE, STEP, outcome, setup, trained

VARIANTS = {
    "all-reduce": ("all_reduce", {}),
    "all-reduce overlapped": ("all_reduce", {"overlap": True}),
    "synchronous": ("parameter_server", {"mode": "bsp"}),
    "layer by layer": ("parameter_server", {"overlap": True}),
    "asynchronous": ("parameter_server", {"mode": "async"}),
    "stale": ("parameter_server", {"mode": "ssp", "bound": 2}),
    "backup": ("parameter_server", {"mode": "backup", "backup": 1}),
    "no backup": ("parameter_server", {"mode": "backup"}),
    "D-PSGD": ("gossip", {}),
    "AD-PSGD": ("gossip", {"algorithm": "ad_psgd"}),
    "push-sum": ("gossip", {"algorithm": "sgp"}),
    "random pairs": ("gossip", {"algorithm": "random_pairs"}),
    "SwarmSGD": ("gossip", {"algorithm": "ad_psgd", "period": 2, "geometric": True}),
    "EASGD": ("elastic", {"period": 5}),
    "local SGD": ("local_sgd", {"period": 5}),
    "Streaming DiLoCo": ("local_sgd", {"period": 4, "fragments": 2, "overlap": 3, "keep": 0.5}),
    "hierarchical": ("local_sgd", {"period": 4, "site": 2, "site_period": 2}),
    "asynchronous local SGD": ("async_local_sgd", {"period": 5}),
    "FedBuff": ("async_local_sgd", {"period": 5, "buffer": 3}),
    "DC-ASGD": ("parameter_server", {"mode": "async", "compensation": 0.04}),
    "federated": ("federated", {"period": 5}),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_others_finish_when_one_never_returns(variant):
    method, options = VARIANTS[variant]
    result = outcome(method, fault=(Fault(rank=1, at=0.55),), **options)
    assert [row["rank"] for row in result.workers if row["steps"] < 10] == [1]
    assert "workers [1] failed and did not come back" in result.warnings


@pytest.mark.parametrize("variant", VARIANTS)
def test_one_that_returns_costs_its_absence_at_most(variant):
    method, options = VARIANTS[variant]
    without = outcome(method, **options)
    away = outcome(method, fault=(Fault(rank=1, at=0.55, after=1.0),), **options)
    assert not any("failed" in warning for warning in away.warnings)
    lost = away.time - without.time
    # Its absence, the step that it had begun, and its weights; without it servers are less busy.
    assert -0.3 < lost < 1.0 + 0.11 + 2 * SIZE / RATE
    assert min(away.samples, without.samples) >= 4 * 20


@pytest.mark.parametrize("variant", VARIANTS)
def test_all_can_fail(variant):
    method, options = VARIANTS[variant]
    pool = trained(method, fault=tuple(Fault(rank=rank, at=0.31) for rank in range(4)), **options)
    assert all(worker.lost for worker in pool.workers)


@pytest.mark.few(6)
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_second_copy_never_makes_it_slower(variant):
    method, options = VARIANTS[variant]
    seconds = []
    for copies in (1, 2):
        result = outcome(method, copies=copies, straggler=JITTER, steps=60, **options)
        seconds.append(result.shares["compute"] * result.time)
    assert seconds[1] < seconds[0]


LATE = Recovery(detection=0.5, restart=2.0)
GONE = (Fault(rank=1, at=0.55),)


@pytest.mark.parametrize(("method", "options"), [("all_reduce", {}), ("local_sgd", {"period": 5})])
def test_a_group_without_one_of_its_ranks_stands_still_until_it_has_formed_again(method, options):
    at_once, late = (
        outcome(method, fault=GONE, recovery=recovery, **options)
        for recovery in (Recovery(detection=0.0, restart=0.0), LATE)
    )
    assert late.time - at_once.time == pytest.approx(0.5 + 2.0, abs=0.6)  # a round had begun
    assert late.workers[0]["waiting"] * late.time > 0.5 + 2.0 - 0.6
    assert late.samples == at_once.samples


def test_bulk_synchronous_servers_wait_until_the_failure_is_detected_and_no_longer():
    times = [
        outcome("parameter_server", mode="bsp", fault=GONE, recovery=recovery).time
        for recovery in (Recovery(detection=0.0), Recovery(detection=1.0), Recovery(detection=3.0))
    ]
    assert times[2] - times[1] == pytest.approx(2.0, rel=1e-9)
    assert times[1] > times[0]


def test_nobody_waits_for_a_dead_worker_of_an_asynchronous_server():
    now, later = (
        outcome("parameter_server", mode="async", fault=GONE, recovery=recovery).time
        for recovery in (Recovery(detection=0.0, restart=0.0), LATE)
    )
    assert later == now


def test_ad_psgd_loses_exchanges_with_a_dead_neighbour_until_its_failure_is_known():
    """Afterwards nobody asks it; nobody waits longer than it takes to know."""
    options = dict(algorithm="ad_psgd", graph="complete", workers=4, fault=GONE)
    now, later = (
        outcome("gossip", recovery=recovery, **options)
        for recovery in (Recovery(detection=0.0, restart=0.0), LATE)
    )
    waited, usual = (
        [row["communication"] * result.time for row in result.workers] for result in (later, now)
    )
    more = [a - b for a, b in zip(waited, usual, strict=True)]
    assert max(more) > 0.1
    assert max(more) <= 0.5 + 0.1


def test_a_worker_that_is_back_fetches_its_weights():
    away = (Fault(rank=1, at=0.55, after=1.0),)
    result = outcome("all_reduce", fault=away)
    down = result.workers[1]["down"] * result.time
    step = result.workers[1]["compute"] * result.time / 20
    assert step == pytest.approx(STEP)
    assert down % STEP == pytest.approx((0.55 + 1.0 + SIZE / RATE) % STEP, abs=0.06)
    assert down > 1.0 + SIZE / RATE


def _fetched(setup):
    """What worker 1 holds just after its return, what it may have fetched then, and the weights of
    its next gradient."""
    pool, found = build(setup), {}
    worker, others = pool.workers[1], [pool.workers[0], *pool.workers[2:]]
    restore, task = worker.restore, worker.task

    def restored(worker):
        yield from restore(worker)
        held = [pool.shared] if pool.shared else others
        found.update(own=worker.weights, theirs=[one.weights for one in held])

    def gradient(weights, rank, step):
        if "own" in found:
            found.setdefault("next", weights)
        return task.gradient(weights, rank, step)

    worker.restore = restored
    worker.task = SimpleNamespace(start=task.start, gradient=gradient)
    setup.plan.start(pool)
    pool.run()
    return found


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_worker_that_is_back_goes_on_with_the_weights_that_it_has_fetched(variant):
    """Its own weights are lost, with the gradient that it was computing on them."""
    method, options = VARIANTS[variant]
    away = (Fault(rank=1, at=0.55, after=1.0),)
    found = _fetched(setup(method, fault=away, learning=QUADRATIC, **options))
    assert any(np.array_equal(found["own"], held) for held in found["theirs"])
    if not options.get("overlap"):  # in parts of a step the gradient comes first
        assert np.array_equal(found["next"], found["own"])


def test_a_worker_that_is_back_takes_the_weights_of_its_own_group():
    """Worker 1 of a site of two fetches from worker 0, whose weights it shares."""
    options = {"period": 4, "site": 2, "site_period": 1}
    away = (Fault(rank=1, at=0.55, after=1.0),)
    found = _fetched(setup("local_sgd", fault=away, learning=QUADRATIC, **options))
    assert np.array_equal(found["own"], found["theirs"][0])


SERVER = dict(mode="bsp", shards=2, learning=QUADRATIC)


def test_a_server_that_fails_goes_back_to_its_checkpoint_and_loses_what_came_since():
    fault = (Fault(server=0, at=1.0, after=2.0),)
    recovery = replace(LATE, checkpoint=4)
    whole, failed = (
        outcome("parameter_server", recovery=recovery, fault=f, **SERVER) for f in ((), fault)
    )
    assert failed.time - whole.time == pytest.approx(2.0 + 2.0, abs=STEP)
    assert 0 < failed.lost < 4
    assert failed.loss > whole.loss == outcome("parameter_server", **SERVER).loss
    assert "lost updates" in str(failed)


def test_a_replica_stands_in_as_soon_as_the_failure_is_known_and_loses_nothing():
    fault = (Fault(server=0, at=1.0),)
    recovery = replace(LATE, replicas=1)
    whole, failed = (
        outcome("parameter_server", recovery=recovery, fault=f, **SERVER) for f in ((), fault)
    )
    assert failed.time - whole.time == pytest.approx(0.5, abs=STEP)
    assert failed.lost == 0
    assert failed.loss == whole.loss
    without = outcome("parameter_server", **SERVER)
    assert whole.bytes == pytest.approx(without.bytes * 3 / 2, rel=1e-9)  # push, pull, and a copy
    assert whole.time > without.time


@pytest.mark.parametrize(
    ("method", "options", "said"),
    [
        ("gossip", {"fault": (Fault(server=0, at=1.0),)}, "this method has none"),
        ("parameter_server", {"fault": (Fault(server=1, at=1.0, after=1.0),)}, "no server 1"),
        ("parameter_server", {"fault": (Fault(server=0, at=1.0),)}, "never comes back"),
        ("parameter_server", {"recovery": Recovery(replicas=1)}, "set more shards"),
    ],
)
def test_a_server_that_cannot_fail_so_is_refused(method, options, said):
    with pytest.raises(InputError, match=said):
        outcome(method, **options)


def test_a_fault_behind_the_end_is_told() -> None:
    fault = {"rank": 1, "at": "900 s"}
    found = sim.run("ps-async", {"sharing.steps": 5, "sharing.fault": [fault]})
    assert any("the fault of rank 1 at 900 s never comes" in own for own in found.warnings)
