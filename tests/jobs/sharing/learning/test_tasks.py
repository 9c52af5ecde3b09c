"""Tasks: gradients are derivatives of losses, batches depend on rank and step alone."""

import numpy as np
import pytest

from sim.jobs.sharing.learning.numpy_tasks import Logistic, Perceptron, Quadratic
from sim.jobs.sharing.learning.optimizers import Optimizer
from sim.jobs.sharing.learning.task import LearningTask, NoTask

TASKS: list[LearningTask] = [
    Quadratic(size=6, noise=0.2, unlike=0.5, workers=4),
    Logistic(size=4, samples=400, batch=64),
    Perceptron(size=5, samples=300, batch=64),
]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_the_mean_gradient_is_the_derivative_of_the_loss(task):
    generator = np.random.default_rng(0)
    weights = task.start + 0.3 * generator.standard_normal(task.start.size)
    drawn = [task.gradient(weights, rank, step) for rank in range(4) for step in range(500)]
    direction = generator.standard_normal(weights.size)
    slope = (task.loss(weights + 1e-5 * direction) - task.loss(weights - 1e-5 * direction)) / 2e-5
    spread = np.std([gradient @ direction for gradient in drawn]) / len(drawn) ** 0.5
    assert float(np.mean(drawn, axis=0) @ direction) == pytest.approx(slope, abs=5 * spread)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_batch_depends_on_rank_and_step_alone(task):
    first = task.gradient(task.start, 1, 7)
    task.gradient(task.start, 0, 3)
    assert np.array_equal(task.gradient(task.start, 1, 7), first)
    assert not np.array_equal(task.gradient(task.start, 2, 7), first)
    assert not np.array_equal(task.gradient(task.start, 1, 8), first)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_every_task_is_learnt_by_plain_sgd(task):
    rule = Optimizer(rate=0.5)
    weights, state = task.start, rule.start(task.start.size)
    for step in range(600):
        weights, state = rule.step(weights, task.gradient(weights, 0, step), state)
    assert task.loss(weights) < 0.7 * task.loss(task.start)


def test_the_quadratics_optimum_is_known_whatever_the_workers_data():
    task = Quadratic(size=4, noise=0.0, unlike=2.0, workers=3)
    pull = sum(task.gradient(np.ones(4), rank, 0) for rank in range(3))
    assert pull == pytest.approx(np.zeros(4), abs=1e-12)
    assert task.loss(np.ones(4)) == 0.0


def test_unlike_data_favour_a_workers_own_labels():
    task = Logistic(size=3, samples=1000, batch=500, unlike=0.9, workers=2)
    low = task._batch(0, 0)[1].mean()
    high = task._batch(1, 0)[1].mean()
    assert low < 0.2 < 0.8 < high


def test_nothing_costs_nothing():
    nothing = NoTask()
    assert nothing.gradient(nothing.start, 0, 0).size == 0
    assert nothing.loss(nothing.start) == 0.0
