"""Gradients that wait change nothing but how many of them are computed together."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from sim.collectives.compression import Compression
from sim.jobs.sharing.learning.deferred import Deferred, Gradient, GradientBatch
from sim.jobs.sharing.learning.numpy_tasks import Perceptron
from sim.jobs.sharing.learning.optimizers import Optimizer
from sim.jobs.sharing.tables import Fault, Learning
from tests.jobs.sharing.pools import JITTER, METHODS, outcome

AT_ONCE = 16
COMPRESSED = Compression(kind="topk", ratio=0.1)


@dataclass
class Waiting:
    """A task's gradients, deferred; `taken` says how many together."""

    task: Any
    taken: list[int] = field(default_factory=list)

    def __post_init__(self):
        self.batch = GradientBatch(self._compute, AT_ONCE)

    def __getattr__(self, name):
        return getattr(self.task, name)

    def _compute(self, gradients):
        self.taken.append(len(gradients))
        return [self.task.gradient(one.weights, one.rank, one.step) for one in gradients]

    def gradient(self, weights, rank, step):
        return Gradient(self.batch, weights, rank, step)


OPTIONS: dict[str, list[dict[str, Any]]] = {
    "parameter_server": [{"mode": mode} for mode in ("bsp", "async", "backup")]
    + [{"mode": "ssp", "bound": 2}, {"overlap": True}],
    "gossip": [
        {"algorithm": name, "overlap": overlap}
        for name, overlap in (
            ("d_psgd", False), ("ad_psgd", True), ("sgp", True), ("random_pairs", False),
        )
    ],
    "local_sgd": [{"period": 5, "nesterov": True, "outer_momentum": 0.9}],
    "async_local_sgd": [{"period": 5, "outer_momentum": 0.5, "delay": 3}],
    "all_reduce": [{}, {"overlap": True}],
}  # fmt: skip
CASES = [(name, options) for name in sorted(METHODS) for options in OPTIONS.get(name, [{}])]
each_method = pytest.mark.parametrize(("name", "options"), CASES)


def learnt(name: str, options: dict[str, Any], task: Any, **more: Any):
    learning = Learning(rate=0.1, **more)
    return outcome(
        name, workers=8, steps=20, straggler=JITTER, learning=learning, task=task, **options
    )


@pytest.mark.few(5)
@each_method
def test_every_method_learns_the_same_to_the_last_bit(name, options):
    task = Perceptron(workers=8, unlike=0.5)
    at_once, waiting = learnt(name, options, task), learnt(name, options, Waiting(task))
    assert at_once.curve
    assert waiting.curve == at_once.curve
    assert waiting.loss == at_once.loss
    assert waiting.spread == at_once.spread


@pytest.mark.few(4)
@pytest.mark.parametrize(
    "optimizer", ["momentum", "nesterov", "adagrad", "rmsprop", "adam", "lars", "lamb"]
)
@pytest.mark.parametrize("name", ["local_sgd", "parameter_server"])
def test_every_optimizer_does(name, optimizer):
    task, options = Perceptron(workers=8), {"mode": "async"} if name != "local_sgd" else {}
    at_once = learnt(name, options, task, optimizer=optimizer)
    assert learnt(name, options, Waiting(task), optimizer=optimizer).curve == at_once.curve


def test_a_server_that_goes_back_to_its_checkpoint_and_compressed_updates_do():
    task, faults = Perceptron(workers=8), (Fault(server=0, at=1.0, after=0.2),)
    for options in ({"fault": faults}, {"compression": COMPRESSED}):
        keys = {"mode": "async", **options}
        at_once = learnt("parameter_server", keys, task)
        assert learnt("parameter_server", keys, Waiting(task)).curve == at_once.curve


@pytest.mark.parametrize("name", sorted(METHODS))
def test_gradients_are_computed_many_together(name):
    """Of 8 workers each waits for its own last one only, so that about as many are known at once;
    those of the fastest come back before the slowest are used."""
    options = {"mode": "async"} if name == "parameter_server" else {}
    waiting = Waiting(Perceptron(workers=8))
    learnt(name, options, waiting)
    assert max(waiting.taken) <= AT_ONCE
    assert np.mean(waiting.taken) > 2.5


def test_nothing_is_computed_before_it_is_asked_for():
    task = Waiting(Perceptron())
    rule = Optimizer(rate=0.1)
    weights, state = task.start, rule.start(task.start.size)
    for step in range(3):
        slope = task.gradient(weights, 0, step)
        weights, state = rule.step(weights, slope, state)
    assert isinstance(weights, Deferred)
    assert task.taken == []
    assert np.isfinite(weights[0])
    assert task.taken == [1, 1, 1]


def test_enough_of_them_are_computed_unasked():
    task = Waiting(Perceptron())
    asked = [task.gradient(task.start, 0, step) for step in range(AT_ONCE + 1)]
    assert task.taken == [AT_ONCE]
    assert [one.value is None for one in asked] == [False] * AT_ONCE + [True]
