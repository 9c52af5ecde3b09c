"""All-reduce: schedules by hand, weights of large-batch SGD, overlap, and DataParallel."""

from dataclasses import replace

import numpy as np
import pytest

from sim.collectives.libraries import backend
from sim.engine.machine import Machine
from sim.hardware.cluster import topology
from sim.sharing.learning.quadratic import Quadratic
from sim.sharing.plan import Fault, Slow
from sim.sharing.run import play, stage
from sim.sharing.workload import Piece
from tests.sharing.teams import JITTER, QUADRATIC, STEP, hosts, lived, plan, played, spans, work

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
    team = lived("all_reduce", overlap=overlap, learning=QUADRATIC, straggler=JITTER, task=TASK)
    for me in team.workers:
        assert np.array_equal(me.weights, large_batch())


def test_a_step_is_compute_and_what_the_library_says_of_the_all_reduce():
    machine = hosts()
    grown = replace(machine, topology=machine.topology.with_gpus(4))
    from sim.collectives.group import GroupShape

    cost = grown.call_cost("all_reduce", work().bytes, GroupShape.of(4, 1))
    network = cost.latency + cost.nic / grown.topology.capacity(("nic-up", 0, 0))
    assert played("all_reduce").time == pytest.approx(20 * (STEP + network), rel=1e-9)


def test_everybody_waits_for_the_slowest():
    slow = (Slow(kind="constant", ranks=(1,), factor=3.0),)
    outcome = played("all_reduce", straggler=slow)
    assert outcome.straggler_seconds == pytest.approx(20 * 2 * STEP, rel=1e-9)
    assert outcome.workers[1]["compute"] > 2 * outcome.workers[0]["compute"]


def test_overlap_hides_all_but_the_last_bucket():
    part = Piece(forward=STEP / 12, backward=STEP / 6, parameters=work().parameters / 4)
    load = replace(work(), pieces=(part,) * 4)
    exposed = played("all_reduce", load=load)
    hidden = played("all_reduce", overlap=True, bucket=1.0, load=load)
    assert 20 * STEP < hidden.time < exposed.time


def test_the_first_of_two_copies_counts():
    one = played("all_reduce", straggler=JITTER, steps=100)
    two = played("all_reduce", straggler=JITTER, steps=100, copies=2)
    assert two.straggler_seconds < 0.6 * one.straggler_seconds


def test_a_failed_worker_costs_what_it_had_computed_and_the_time_it_was_away():
    fault = (Fault(rank=0, at=STEP / 2, after=1.0),)
    with_fault, without = played("all_reduce", fault=fault), played("all_reduce")
    assert with_fault.time - without.time == pytest.approx(STEP / 2 + 1.0, rel=1e-9)
    assert with_fault.straggler_seconds == pytest.approx(STEP / 2 + 1.0, rel=1e-9)


def test_a_group_shrinks_when_a_worker_is_gone_for_good():
    team = lived("all_reduce", fault=(Fault(rank=2, at=0.55),))
    assert [me.gone for me in team.workers] == [False, False, True, False]
    assert team.workers[0].steps == 20


def test_data_parallel_in_one_process_is_the_slow_baseline():
    node = Machine(topology.load("dgx-1-v100").with_gpus(8), backend.load("nccl"))
    load = work(launches=STEP / 4, inputs=6e5, batch=32)
    slow = play(stage(plan("data_parallel", workers=8), node, load))
    fast = play(stage(plan("all_reduce", workers=8), node, load))
    assert slow.time > 20 * 8 * STEP / 4 > fast.time


def on_a_node(**options):
    node = Machine(topology.load("dgx-1-v100").with_gpus(8), backend.load("nccl"))
    load = work(launches=STEP / 4, inputs=6e5, batch=32)
    return play(stage(plan("data_parallel", workers=8, **options), node, load))


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
    one, other = (played("all_reduce", straggler=JITTER, seed=3) for _ in range(2))
    assert spans(one) == spans(other)
    assert spans(one) != spans(played("all_reduce", straggler=JITTER, seed=4))
