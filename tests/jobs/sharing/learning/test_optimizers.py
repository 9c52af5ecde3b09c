"""Optimizers step as torch's do."""

from math import prod

import numpy as np
import pytest

from sim.jobs.sharing.learning.numpy_tasks import Logistic, Perceptron
from sim.jobs.sharing.learning.optimizers import Optimizer
from sim.jobs.sharing.tables import Learning
from tests.jobs.sharing.pools import outcome, plan

SAME = {
    "sgd": ("SGD", {}),
    "momentum": ("SGD", {"momentum": 0.9}),
    "nesterov": ("SGD", {"momentum": 0.9, "nesterov": True}),
    "adagrad": ("Adagrad", {"eps": 1e-8}),
    "rmsprop": ("RMSprop", {"alpha": 0.999, "eps": 1e-8}),
    "adam": ("Adam", {"betas": (0.9, 0.999), "eps": 1e-8}),
}


@pytest.mark.parametrize("rule", SAME)
def test_ten_steps_are_torchs(rule):
    torch = pytest.importorskip("torch")
    name, options = SAME[rule]
    generator = np.random.default_rng(1)
    start, gradients = generator.standard_normal(5), generator.standard_normal((10, 5))
    theirs = torch.nn.Parameter(torch.from_numpy(start.copy()))
    optimizer = getattr(torch.optim, name)([theirs], lr=0.05, **options)
    ours = Optimizer(rule=rule, rate=0.05)
    weights, state = start, ours.start(5)
    for gradient in gradients:
        theirs.grad = torch.from_numpy(gradient.copy())
        optimizer.step()
        weights, state = ours.step(weights, gradient, state)
    assert weights == pytest.approx(theirs.detach().numpy(), rel=1e-10)


@pytest.mark.parametrize("rule", ["sgd", "momentum", "nesterov", "adam"])
def test_weight_decay_is_torchs(rule):
    torch = pytest.importorskip("torch")
    name, options = SAME[rule]
    theirs = torch.nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    optimizer = getattr(torch.optim, name)([theirs], lr=0.05, weight_decay=0.1, **options)
    ours, weights = Optimizer(rule=rule, rate=0.05, weight_decay=0.1), np.array([1.0, -2.0])
    state = ours.start(2)
    for gradient in np.array([[0.5, 1.0], [-1.0, 0.2], [0.3, 0.3]]):
        theirs.grad = torch.from_numpy(gradient.copy())
        optimizer.step()
        weights, state = ours.step(weights, gradient, state)
    assert weights == pytest.approx(theirs.detach().numpy(), rel=1e-12)


LAYERS = ((3, True), (2, False), (4, True))
PARTS = (slice(0, 3), slice(3, 5), slice(5, 9))


def layered(rule, **options):
    return Optimizer(rule=rule, rate=0.1, layers=LAYERS, **options)


def run(rule, gradients):
    weights, state, passed = np.arange(1.0, 10.0), rule.start(9), []
    for gradient in gradients:
        weights, state = rule.step(weights, gradient, state)
        passed.append(weights)
    return passed


def test_lars_is_algorithm_1_of_you_gitman_and_ginsburg():
    """Global rate g, coefficient eta, decay beta, momentum m, for each layer l:
    lambda = eta |w| / (|grad| + beta |w|); v = m v + g lambda (grad + beta w); w = w - v."""
    gradients = np.random.default_rng(0).standard_normal((5, 9))
    found = run(layered("lars", trust=0.02, weight_decay=0.1, beta=0.8), gradients)
    weights, v = np.arange(1.0, 10.0), np.zeros(9)
    for gradient, ours in zip(gradients, found, strict=True):
        for part, (_, scaled) in zip(PARTS, LAYERS, strict=True):
            w, slope = weights[part], gradient[part]
            local = 1.0
            if scaled:
                own = np.linalg.norm(w)
                local = 0.02 * own / (np.linalg.norm(slope) + 0.1 * own)
            v[part] = 0.8 * v[part] + 0.1 * local * (slope + 0.1 * w)
        weights = weights - v
        assert ours == pytest.approx(weights, rel=1e-12)


def test_a_step_of_lamb_is_as_long_as_the_rate_times_the_weights_of_each_layer():
    """You et al. 2020: however large gradients are."""
    gradients = np.random.default_rng(1).standard_normal((4, 9))
    small, large = (run(layered("lamb"), size * gradients) for size in (1.0, 1e4))
    assert np.allclose(small, large, rtol=1e-6)
    before = np.arange(1.0, 10.0)
    for after in small:
        for part, (_, scaled) in zip(PARTS, LAYERS, strict=True):
            length = np.linalg.norm((after - before)[part]) / np.linalg.norm(before[part])
            assert (length == pytest.approx(0.1)) == scaled
        before = after


def test_lamb_without_layers_to_scale_is_adam():
    gradients = np.random.default_rng(2).standard_normal((4, 9))
    alone = Optimizer(rule="lamb", rate=0.1, layers=((9, False),))
    assert np.allclose(run(alone, gradients), run(Optimizer(rule="adam", rate=0.1), gradients))


@pytest.mark.parametrize("rule", ["lars", "lamb"])
def test_layers_of_zeros_move_unscaled(rule):
    weights, _ = Optimizer(rule=rule).step(np.zeros(2), np.ones(2), Optimizer(rule=rule).start(2))
    assert weights == pytest.approx([-0.1, -0.1])


@pytest.mark.parametrize("task", [Logistic(size=3), Perceptron(size=4)], ids=lambda t: t.name)
def test_layers_of_a_task_are_all_its_weights(task):
    assert sum(prod(shape) for shape in task.shapes) == task.start.size


def test_a_warm_up_climbs_to_the_scaled_rate_from_that_of_one_gradient():
    """Goyal et al. 2017."""
    learning = Learning(rate=0.1, scaling="linear", warmup=5)
    rule = plan("all_reduce", learning=learning).rule(8, Perceptron())
    assert [rule.rate_of(step) for step in range(6)] == pytest.approx(
        [0.24, 0.38, 0.52, 0.66, 0.8, 0.8]
    )
    unscaled = plan("all_reduce", learning=Learning(rate=0.1, warmup=5)).rule(8, Perceptron())
    assert unscaled.rate_of(0) == pytest.approx(0.02)
    said = outcome("all_reduce", workers=4, steps=2, learning=learning).rate
    assert (
        said
        == "0.4 = 0.1 x 4 for 4 gradients averaged (linear scaling), warmed up from 0.1 in 5 steps"
    )


@pytest.mark.parametrize(
    ("keys", "rates"),
    [
        ({"schedule": "step", "span": 2}, [0.1, 0.1, 0.01, 0.01, 0.001]),
        ({"schedule": "cosine", "span": 4}, [0.1, 0.08535534, 0.05, 0.01464466, 0.0]),
        ({"schedule": "inverse-root", "warmup": 2}, [0.05, 0.1, 0.08164966, 0.07071068]),
    ],
)
def test_a_rate_falls_as_torchs_schedulers_let_it(keys, rates):
    """StepLR(gamma=0.1), CosineAnnealingLR; Vaswani et al. 2017 for the last."""
    rule = plan("all_reduce", learning=Learning(rate=0.1, **keys)).rule(1, Perceptron())
    assert [rule.rate_of(step) for step in range(len(rates))] == pytest.approx(rates, abs=1e-8)


def test_a_schedule_without_its_span_is_refused_and_one_is_told_with_the_rate():
    for keys in ({"schedule": "cosine"}, {"span": 3}, {"schedule": "inverse-root"}):
        with pytest.raises(ValueError, match=r"span|warmup"):
            Learning(**keys)
    learning = Learning(rate=0.1, schedule="cosine", span=20)
    said = outcome("all_reduce", workers=2, steps=2, learning=learning).rate
    assert said == "0.1 (2 gradients averaged, not scaled), then cosine over 20 steps"


def test_square_root_scaling_keeps_the_variance_of_a_step():
    """Krizhevsky 2014: n gradients averaged have 1/n of the variance of one."""
    learning = Learning(rate=0.1, scaling="sqrt")
    assert plan("all_reduce", learning=learning).rate(16) == pytest.approx(0.4)
    said = outcome("all_reduce", workers=4, steps=2, learning=learning).rate
    assert said == "0.2 = 0.1 x sqrt(4) for 4 gradients averaged (sqrt scaling)"


def test_a_trust_coefficient_beside_another_rule_is_refused():
    with pytest.raises(ValueError, match='set optimizer = "lars", or leave trust out'):
        Learning(trust=0.01)


def test_rates_and_momenta_out_of_range_are_refused():
    with pytest.raises(ValueError, match="rate"):
        Optimizer(rate=0.0)
    with pytest.raises(ValueError, match="beta"):
        Optimizer(beta=1.0)
