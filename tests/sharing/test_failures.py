"""Workers that fail, return, or never return, with every method."""

import pytest

from sim.sharing.tables import WorkerFault
from tests.sharing.pools import JITTER, outcome, trained

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
    "local SGD": ("local_sgd", {"period": 5}),
    "asynchronous local SGD": ("async_local_sgd", {"period": 5}),
    "federated": ("federated", {"period": 5}),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_others_finish_when_one_never_returns(variant):
    method, options = VARIANTS[variant]
    result = outcome(method, fault=(WorkerFault(rank=1, at=0.55),), **options)
    assert [row["rank"] for row in result.workers if row["steps"] < 10] == [1]
    assert result.warnings == ("workers [1] failed and did not come back",)


@pytest.mark.parametrize("variant", VARIANTS)
def test_one_that_returns_costs_its_absence_at_most(variant):
    method, options = VARIANTS[variant]
    without = outcome(method, **options)
    away = outcome(method, fault=(WorkerFault(rank=1, at=0.55, after=1.0),), **options)
    assert away.warnings == ()
    lost = away.time - without.time
    # Its absence and the step that it had begun; without it the servers are less busy.
    assert -0.3 < lost < 1.0 + 0.11
    assert min(away.samples, without.samples) >= 4 * 20


@pytest.mark.parametrize("variant", VARIANTS)
def test_all_can_fail(variant):
    method, options = VARIANTS[variant]
    pool = trained(
        method, fault=tuple(WorkerFault(rank=rank, at=0.31) for rank in range(4)), **options
    )
    assert all(worker.lost for worker in pool.workers)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_second_copy_never_makes_it_slower(variant):
    method, options = VARIANTS[variant]
    seconds = []
    for copies in (1, 2):
        result = outcome(method, copies=copies, straggler=JITTER, steps=60, **options)
        seconds.append(result.shares["compute"] * result.time)
    assert seconds[1] < seconds[0]
