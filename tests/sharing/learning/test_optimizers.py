"""Optimizers step as torch's do."""

import numpy as np
import pytest

from sim.sharing.learning.optimizers import Optimizer

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


def test_rates_and_momenta_out_of_range_are_refused():
    with pytest.raises(ValueError, match="rate"):
        Optimizer(rate=0.0)
    with pytest.raises(ValueError, match="beta"):
        Optimizer(beta=1.0)
