"""What becomes of updates of shared weights: together (FedBuff), late (DC-ASGD), in turns."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.jobs.sharing.learning.numpy_tasks import Quadratic
from sim.jobs.sharing.merging import DelayCompensated
from sim.jobs.sharing.methods.parameter_server import ParameterServer
from sim.jobs.sharing.run import run
from sim.jobs.sharing.setup import assemble
from sim.jobs.sharing.tables import Learning, StragglerCause
from sim.variability.laws import Constant
from tests.jobs.sharing.pools import JITTER, QUADRATIC, SIZE, hosts, outcome, plan, trained, work

TASK = Quadratic(size=5, noise=0.3, unlike=0.5, workers=4, batch=32)
CLEAN = Quadratic(size=5, noise=0.0, workers=4)
SLOW = (StragglerCause(law=Constant(factor=2.7), ranks=(0,)),)
ASYNCHRONOUS = [("parameter_server", {"mode": "async"}), ("async_local_sgd", {"period": 3})]


@pytest.mark.parametrize(("method", "options"), ASYNCHRONOUS)
def test_a_buffer_of_one_is_no_buffer(method, options):
    keys = dict(learning=QUADRATIC, task=TASK, straggler=JITTER, **options)
    plain, buffered = (trained(method, **keys, **more) for more in ({}, {"buffer": 1}))
    assert np.array_equal(plain.server.weights, buffered.server.weights)
    assert plain.cluster.now == buffered.cluster.now


def test_a_buffer_of_all_workers_steps_once_a_round():
    """Workers that are alike push at one moment; who fills the buffer reads what comes of it, the
    others have read what was there before."""
    keys = dict(learning=QUADRATIC, task=TASK, steps=12, servers="colocated", shards=4)
    pool = trained("parameter_server", mode="async", buffer=4, **keys)
    versions = [TASK.start, TASK.start]
    for step in range(12):
        slopes = [TASK.gradient(versions[-1 if r == 3 else -2], r, step) for r in range(4)]
        versions.append(versions[-1] - QUADRATIC.rate * sum(slopes) / 4)
    assert pool.server.weights == pytest.approx(versions[-1], rel=1e-9)
    assert pool.record.staleness == {0: 12 + 3, 1: 3 * 11}


@settings(max_examples=25, deadline=None)
@given(buffer=st.integers(1, 6), seed=st.integers(0, 50))
def test_the_buffer_takes_no_time_and_counts_every_update(buffer, seed):
    keys = dict(straggler=JITTER, seed=seed, learning=QUADRATIC, task=TASK, until=2.0)
    pool = trained("parameter_server", mode="async", buffer=buffer, **keys)
    plain = trained("parameter_server", mode="async", **keys)
    assert pool.cluster.carried() == plain.cluster.carried()
    assert pool.record.updates == plain.record.updates // buffer
    assert sum(pool.record.staleness.values()) == buffer * pool.record.updates


def test_updates_in_a_buffer_are_less_stale():
    """A version is worth K updates, so what is s updates late is about s / K versions late."""
    alone, four = (
        outcome("parameter_server", mode="async", workers=8, buffer=buffer, until=5.0)
        for buffer in (1, 4)
    )
    assert four.staleness["mean"] < 0.4 * alone.staleness["mean"]


def test_a_late_update_counts_as_its_power_of_lateness():
    """Workers in turn: the second update of every round is one version late, and so on."""
    for decay in (0.5, 1.0):
        learning = Learning(task="quadratic", noise=0.0, rate=0.1, decay=decay)
        pool = trained("parameter_server", mode="async", steps=1, learning=learning, task=CLEAN)
        slope = CLEAN.gradient(CLEAN.start, 0, 0)
        moved = -0.1 * slope * sum((1.0 + late) ** -decay for late in range(4))
        assert pool.server.weights == pytest.approx(moved, rel=1e-12)


def test_with_the_hessian_known_compensation_undoes_any_delay():
    """g(w_read) + a (w - w_read) = g(w) on a quadratic, so that asynchronous steps are those of
    one worker after the other."""
    hessian = CLEAN.gradient(CLEAN.start + 1.0, 0, 0) - CLEAN.gradient(CLEAN.start, 0, 0)
    exact = DelayCompensated(strength=1.0, curvature=lambda _: hessian)
    learning = Learning(task="quadratic", noise=0.0, rate=0.1)

    class Exact(ParameterServer):
        def merging(self, optimizer, size):
            own = ParameterServer.merging(self, optimizer, size)
            return type(own)(rule=own.rule, compensate=exact)

    keys = dict(mode="async", workers=4, steps=20, straggler=SLOW, learning=learning)
    pool = run(assemble(Exact(**keys), hosts(), work(), task=CLEAN))
    assert max(pool.record.staleness) > 3
    weights = CLEAN.start
    for _ in range(pool.server.version):
        weights = weights - 0.1 * CLEAN.gradient(weights, 0, 0)
    assert pool.server.weights == pytest.approx(weights, rel=1e-9)
    plain = trained("parameter_server", **keys, task=CLEAN)
    assert not np.allclose(plain.server.weights, weights, rtol=1e-3)


def test_compensation_does_nothing_to_what_is_not_late():
    keys = dict(mode="async", workers=1, learning=QUADRATIC, task=TASK)
    plain, strong = (
        trained("parameter_server", **keys, **more) for more in ({}, {"compensation": 9.0})
    )
    assert np.array_equal(plain.server.weights, strong.server.weights)


def test_adaptive_compensation_is_in_the_units_of_the_curvature():
    """Squares over their root are as large as the gradients: twice these, twice the correction."""
    gone, slope = np.array([0.3]), np.array([0.7])
    moved = [
        float(DelayCompensated(strength=1.0, adaptive=True)(scale * slope, gone)[0] - scale * 0.7)
        for scale in (1.0, 2.0)
    ]
    assert moved[1] == pytest.approx(2 * moved[0], rel=1e-5)


def test_what_servers_keep_for_a_method():
    own = 1e6

    def kept(method, **options):
        return plan(method, **options).kept_by_server(own, 8)

    assert kept("async_local_sgd") == {}
    assert kept("async_local_sgd", buffer=4) == {"sum in the buffer": 4 * own}
    nesterov = kept("async_local_sgd", outer_momentum=0.9, delay=4)
    assert nesterov == {"outer momentum": 4 * own, "sum of the delayed": 4 * own}
    compensated = kept("parameter_server", mode="async", compensation=0.04)
    assert compensated["weights that workers have read"] == 8 * 4 * own
    adaptive = kept("parameter_server", mode="async", compensation=2.0, adaptive=True)
    assert adaptive["mean squares"] == 4 * own
    held = outcome("parameter_server", mode="async", compensation=0.04, steps=1).memory[0]["parts"]
    assert held["weights that workers have read"] == 4 * SIZE


@pytest.mark.parametrize(
    ("method", "options", "said"),
    [
        ("parameter_server", {"buffer": 4}, "buffer would have no effect with mode"),
        ("parameter_server", {"mode": "bsp", "compensation": 0.1}, "compensation would have no"),
        ("parameter_server", {"mode": "async", "adaptive": True}, "without compensation"),
        ("async_local_sgd", {"delay": 4}, "without outer_momentum"),
    ],
)
def test_keys_that_say_nothing_are_refused(method, options, said):
    with pytest.raises(ValueError, match=said):
        plan(method, **options)


@pytest.mark.parametrize(
    ("method", "options", "title"),
    [
        ("async_local_sgd", {"buffer": 4}, "async local sgd (buffer of 4)"),
        ("async_local_sgd", {"outer_momentum": 0.9, "delay": 4}, "async local sgd (delayed Nest"),
        ("async_local_sgd", {"dynamic": True}, "async local sgd (dynamic local updates)"),
        ("parameter_server", {"mode": "async", "compensation": 0.1}, "asynchronous, delay-comp"),
    ],
)
def test_a_method_is_named_as_in_its_paper(method, options, title):
    assert title in plan(method, **options).title
