"""Parameter servers: bounds, schedules, weights and incast."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.jobs.sharing.learning.numpy_tasks import Quadratic
from sim.jobs.sharing.outcome import Outcome
from sim.jobs.sharing.tables import StragglerCause
from sim.jobs.sharing.workload import Workload
from sim.variability.laws import Constant
from tests.jobs.sharing.pools import (
    JITTER,
    QUADRATIC,
    RATE,
    SIZE,
    STEP,
    outcome,
    spans,
    trained,
    work,
)

TASK = Quadratic(size=5, noise=0.3, unlike=0.5, workers=4, batch=32)


def leads(outcome: Outcome) -> list[int]:
    """At each start of a step, how many steps its worker is ahead of the slowest (from spans)."""
    pushed: dict[int, list[float]] = defaultdict(list)
    for span in outcome.timeline.spans:
        if span.name == "push":
            pushed[span.role].append(span.end)
    starts = [
        (span.start, span.args["microbatch"])
        for span in outcome.timeline.spans
        if span.args.get("phase") == "F"
    ]
    return [
        step - min(sum(end <= start for end in ends) for ends in pushed.values())
        for start, step in starts
    ]


@settings(max_examples=15, deadline=None)
@given(bound=st.integers(0, 5), seed=st.integers(0, 100), workers=st.integers(2, 6))
def test_stale_synchronous_never_exceeds_its_bound(bound, seed, workers):
    result = outcome(
        "parameter_server", mode="ssp", bound=bound, seed=seed, workers=workers, straggler=JITTER
    )
    assert max(leads(result)) <= bound


def test_a_bound_that_binds_is_reached_and_asynchronous_exceeds_it():
    slow = (StragglerCause(law=Constant(factor=3.0), ranks=(0,)),)
    bounded = outcome("parameter_server", mode="ssp", bound=2, straggler=slow)
    free = outcome("parameter_server", mode="async", straggler=slow)
    assert max(leads(bounded)) == 2
    assert max(leads(free)) > 2


@pytest.mark.parametrize("seed", range(5))
def test_a_bound_of_nothing_has_the_schedule_of_bulk_synchronous(seed):
    options = dict(seed=seed, straggler=JITTER, server_passes=3.0, overhead=1e-4)
    bulk = outcome("parameter_server", mode="bsp", **options)
    stale = outcome("parameter_server", mode="ssp", bound=0, **options)
    assert spans(stale) == spans(bulk)


@pytest.mark.parametrize("seed", range(5))
def test_an_unlimited_bound_has_the_schedule_and_the_weights_of_asynchronous(seed):
    options = dict(seed=seed, straggler=JITTER, server_passes=3.0, learning=QUADRATIC)
    free = outcome("parameter_server", mode="async", **options)
    stale = outcome("parameter_server", mode="ssp", bound=10**9, **options)
    assert spans(stale) == spans(free)
    assert stale.loss == free.loss
    assert stale.staleness == free.staleness


def test_bulk_synchronous_gives_the_weights_of_large_batch_sgd_bit_for_bit():
    pool = trained("parameter_server", mode="bsp", learning=QUADRATIC, straggler=JITTER, task=TASK)
    weights = TASK.start
    for step in range(20):
        total = TASK.gradient(weights, 0, step)
        for rank in range(1, 4):
            total = total + TASK.gradient(weights, rank, step)
        weights = weights - QUADRATIC.rate * (total / 4)
    assert np.array_equal(pool.server.weights, weights)


def test_layer_by_layer_gives_the_same_weights_sooner():
    options = dict(mode="bsp", learning=QUADRATIC, task=TASK, workload=layers())
    whole = trained("parameter_server", **options)
    pieces = trained("parameter_server", overlap=True, bucket=1.0, **options)
    assert np.array_equal(whole.server.weights, pieces.server.weights)
    assert pieces.cluster.now < whole.cluster.now


def layers():
    whole = work()
    part = replace(
        whole.layers[0],
        forward=whole.forward / 4,
        backward=whole.backward / 4,
        parameters=whole.parameters / 4,
    )
    return replace(whole, layers=(part,) * 4)


@pytest.mark.parametrize("shards", [1, 2, 8])
def test_the_incast_takes_n_s_over_b(shards):
    """All workers push at once: n S bytes enter k servers of B each."""
    n = 6
    result = outcome("parameter_server", mode="bsp", workers=n, steps=1, shards=shards)
    incast = n * SIZE / (RATE * min(shards, n))
    # A push and a pull; a worker's own link is the limit where there are more servers than workers.
    assert result.time == pytest.approx(STEP + 2 * incast, rel=1e-9)


def test_asynchronous_updates_come_up_to_the_rate_of_the_servers_link_and_never_above():
    """b = B / S; pushes and pulls are two queues of that rate, which are not always both filled."""
    result = outcome("parameter_server", mode="async", workers=40, until=40.0, straggler=JITTER)
    assert 0.88 * RATE / SIZE < result.updates_per_second <= RATE / SIZE


def test_equal_asynchronous_workers_are_n_minus_one_updates_stale():
    result = outcome("parameter_server", mode="async", workers=5, steps=200, straggler=JITTER)
    assert result.staleness["mean"] == pytest.approx(4.0, rel=0.03)


def test_servers_that_work_slowly_queue():
    fast = outcome("parameter_server", mode="async", steps=10)
    slow = outcome("parameter_server", mode="async", steps=10, server_passes=3.0, server_memory=1e9)
    assert slow.shares["server"] > 0.2 > fast.shares["server"]


def test_backup_workers_spare_the_wait_for_the_slowest_and_drop_its_gradients():
    slow = (StragglerCause(law=Constant(factor=4.0), ranks=(3,)),)
    all_of_them = outcome("parameter_server", mode="bsp", straggler=slow)
    with_backup = outcome("parameter_server", mode="backup", backup=1, straggler=slow)
    assert (with_backup.updates, all_of_them.updates) == (27, 20)  # 80 samples, three a round
    assert with_backup.dropped > 0
    assert with_backup.time < 0.6 * all_of_them.time


def test_without_backup_workers_it_is_bulk_synchronous():
    options = dict(straggler=JITTER, learning=QUADRATIC)
    without = outcome("parameter_server", mode="backup", backup=0, **options)
    assert spans(without) == spans(outcome("parameter_server", mode="bsp", **options))


def test_colocated_shards_spread_the_incast_over_all_workers():
    single = outcome("parameter_server", mode="bsp", steps=1, workers=4)
    spread = outcome(
        "parameter_server", mode="bsp", steps=1, workers=4, shards=4, servers="colocated"
    )
    # Each NIC receives 3/4 of every other worker's quarter: 3 S / 4 B each way.
    assert spread.time == pytest.approx(STEP + 2 * 3 / 4 * SIZE / RATE, rel=1e-9)
    assert spread.time < single.time


def test_spare_hosts_take_the_load_off_the_workers_links():
    """BytePS with n workers and n spare hosts moves S / B each way, with none 2 (n-1)/n S / B."""
    n, times = 4, []
    for shards in (1, 2, 4):
        options = dict(mode="bsp", steps=1, workers=n, servers="spare", shards=shards)
        times.append(outcome("parameter_server", **options).time - STEP)
    assert times[-1] == pytest.approx(2 * SIZE / RATE, rel=1e-9)
    assert times == sorted(times, reverse=True)


def test_fluid_and_message_by_message_agree_within_a_percent():
    options = dict(mode="async", workers=6, shards=4, steps=30, straggler=JITTER)
    fluid = outcome("parameter_server", **options)
    each = outcome("parameter_server", fluid=False, **options)
    assert fluid.time == pytest.approx(each.time, rel=0.01)
    assert fluid.staleness["mean"] == pytest.approx(each.staleness["mean"], rel=0.01)


def test_messages_are_not_merged_where_servers_share_the_workers_links():
    """A slow worker's links are idle while others' are full: shares of one transfer would all go at
    the pace of the fullest, and the run be 0.6 % longer."""
    slow = (StragglerCause(law=Constant(factor=2.0), ranks=(0,)),)
    options = dict(mode="async", shards=4, servers="colocated", server_passes=8.0, straggler=slow)
    options["workload"] = Workload.plain(STEP, SIZE)
    fluid, each = (outcome("parameter_server", fluid=on, **options).time for on in (True, False))
    assert fluid == pytest.approx(each, rel=1e-9)


@pytest.mark.parametrize("overlap", [False, True])
def test_servers_that_only_sum_leave_the_optimizer_to_the_workers(overlap):
    options = dict(mode="bsp", overlap=overlap, workers=4, shards=4, workload=work(optimizer=0.01))
    updating, summing = (
        outcome("parameter_server", servers=servers, **options).shares["optimizer"]
        for servers in ("dedicated", "spare")
    )
    assert updating == 0.0
    assert summing * outcome("parameter_server", servers="spare", **options).time == pytest.approx(
        20 * 0.01
    )


def test_a_cache_that_may_lack_nothing_pulls_at_every_step():
    options = {"mode": "ssp", "workers": 4, "straggler": JITTER, "learning": QUADRATIC}
    plain, cached = (
        outcome("parameter_server", cached=cached, **options) for cached in (False, True)
    )
    assert spans(plain) == spans(cached)
    assert plain.loss == cached.loss


def test_the_staler_a_cache_may_be_the_fewer_bytes_are_pulled():
    """Even workers pull once in s + 1 steps (Ho et al. 2013)."""
    for bound in (0, 1, 4):
        result = outcome("parameter_server", mode="ssp", bound=bound, cached=True, steps=60)
        pulls = sum(span.name == "pull" for span in result.timeline.spans)
        assert pulls == pytest.approx(4 * 60 / (bound + 1), rel=0.1)
        assert all(lead <= bound for lead in leads(result))


def test_a_worker_by_itself_reads_what_it_has_written_from_its_cache():
    once = {"workers": 1, "learning": QUADRATIC}
    alone = outcome("parameter_server", mode="async", **once)
    cached = outcome("parameter_server", mode="ssp", bound=10**6, cached=True, **once)
    assert cached.loss == pytest.approx(alone.loss, rel=1e-9)
    assert cached.time < alone.time
