"""All-reduce: schedules by hand, weights of large-batch SGD, overlap, and DataParallel."""

from dataclasses import replace

import numpy as np
import pytest

from sim.collectives.libraries import backend
from sim.collectives.schedule import GroupShape
from sim.engine.machine import Machine
from sim.hardware.cluster import topology
from sim.jobs.sharing.learning.numpy_tasks import Quadratic
from sim.jobs.sharing.tables import Fault, StragglerCause
from sim.jobs.sharing.workload import TimedLayer
from sim.variability.laws import Constant
from tests.jobs.sharing.pools import (
    JITTER,
    QUADRATIC,
    RATE,
    SIZE,
    STEP,
    hosts,
    outcome,
    spans,
    trained,
    work,
)

TASK = Quadratic(size=5, noise=0.3, unlike=0.5, workers=4, batch=32)


def large_batch(steps: int = 20) -> np.ndarray:
    weights = TASK.start
    for step in range(steps):
        total = TASK.gradient(weights, 0, step)
        for rank in range(1, 4):
            total = total + TASK.gradient(weights, rank, step)
        weights = weights - QUADRATIC.rate * (total / 4)
    return weights


@pytest.mark.parametrize("overlap", [False, True])
def test_all_reduce_gives_the_weights_of_large_batch_sgd_bit_for_bit(overlap):
    pool = trained("all_reduce", overlap=overlap, learning=QUADRATIC, straggler=JITTER, task=TASK)
    for worker in pool.workers:
        assert np.array_equal(worker.weights, large_batch())


def test_a_step_is_compute_and_what_the_library_says_of_the_all_reduce():
    machine = hosts()
    grown = replace(machine, topology=machine.topology.with_hosts(4).with_gpus(4))
    cost = grown.call_cost("all_reduce", work().bytes, GroupShape.of(4, 1))
    network = cost.latency + cost.nic / grown.topology.capacity(("nic-up", 0, 0))
    assert outcome("all_reduce").time == pytest.approx(20 * (STEP + network), rel=1e-9)


def test_everybody_waits_for_the_slowest():
    slow = (StragglerCause(law=Constant(factor=3.0), ranks=(1,)),)
    result = outcome("all_reduce", straggler=slow)
    assert result.straggler_seconds == pytest.approx(20 * 2 * STEP, rel=1e-9)
    assert result.workers[1]["compute"] > 2 * result.workers[0]["compute"]


def test_overlap_hides_all_but_the_last_bucket():
    part = TimedLayer(forward=STEP / 12, backward=STEP / 6, parameters=work().parameters / 4)
    load = replace(work(), layers=(part,) * 4)
    exposed = outcome("all_reduce", workload=load)
    hidden = outcome("all_reduce", overlap=True, bucket=1.0, workload=load)
    assert 20 * STEP < hidden.time < exposed.time


def test_the_first_of_two_copies_counts():
    single = outcome("all_reduce", straggler=JITTER, steps=100)
    two = outcome("all_reduce", straggler=JITTER, steps=100, copies=2)
    assert two.time - 100 * STEP < 0.6 * (single.time - 100 * STEP)


def test_a_failed_worker_costs_what_it_had_computed_and_the_time_it_was_away():
    fault = (Fault(rank=0, at=STEP / 2, after=1.0),)
    with_fault, without = outcome("all_reduce", fault=fault), outcome("all_reduce")
    lost = STEP / 2 + 1.0 + SIZE / RATE  # and its weights come from a peer
    assert with_fault.time - without.time == pytest.approx(lost, rel=1e-9)
    assert with_fault.straggler_seconds == pytest.approx(lost, rel=1e-9)


def test_a_group_shrinks_when_a_worker_is_gone_for_good():
    pool = trained("all_reduce", fault=(Fault(rank=2, at=0.55),))
    assert [worker.lost for worker in pool.workers] == [False, False, True, False]
    assert {worker.steps for worker in pool.workers} == {4, 26}  # 80 samples in all


def test_data_parallel_in_one_process_is_the_slow_baseline():
    node = Machine(topology.load("dgx-1-v100").with_gpus(8), backend.load("nccl"))
    load = work(launches=STEP / 4, inputs=6e5, batch=32)
    slow = outcome("data_parallel", workers=8, machine=node, workload=load)
    fast = outcome("all_reduce", workers=8, machine=node, workload=load)
    assert slow.time > 20 * 8 * STEP / 4 > fast.time


def on_a_node(**options):
    node = Machine(topology.load("dgx-1-v100").with_gpus(8), backend.load("nccl"))
    load = work(launches=STEP / 4, inputs=6e5, batch=32)
    return outcome("data_parallel", workers=8, machine=node, workload=load, **options)


def test_a_gpu_that_fails_for_good_ends_the_one_process():
    outcome = on_a_node(fault=(Fault(rank=2, at=1.0),))
    assert outcome.warnings == (f"workers {list(range(8))} failed and did not come back",)
    assert {row["steps"] for row in outcome.workers} <= {outcome.updates, outcome.updates + 1}
    assert outcome.time < 1.5


def test_a_gpu_that_returns_holds_up_the_one_process():
    away, without = on_a_node(fault=(Fault(rank=2, at=1.0, after=3.0),)), on_a_node()
    assert away.updates == without.updates
    assert 3.0 < away.time - without.time < 3.0 + STEP


def test_the_one_process_accounts_for_all_of_its_gpus_time():
    outcome = on_a_node(straggler=JITTER)
    for row in outcome.workers:
        assert row["idle"] < 1e-9
    assert outcome.workers[0]["waiting"] > 0.0


def test_the_same_seed_gives_the_same_run():
    first, second, other = (outcome("all_reduce", straggler=JITTER, seed=n) for n in (3, 3, 4))
    assert spans(first) == spans(second)
    assert spans(first) != spans(other)


def test_data_parallel_ends_with_its_first_gpu_whoever_has_finished_the_step():
    slow = (StragglerCause(law=Constant(factor=4.0), ranks=(0,)),)
    first = (Fault(rank=0, at=0.31),)
    result = outcome("data_parallel", workers=3, steps=1, straggler=slow, fault=first)
    assert result.updates == 0
    assert result.time == pytest.approx(0.31)
