"""Any torch module with a loss learns in a simulation."""

import numpy as np
import pytest

from tests.sharing.pools import Learning, outcome


def test_a_torch_module_is_a_task():
    torch = pytest.importorskip("torch")
    from sim.sharing.learning.module import Module

    torch.manual_seed(0)
    inputs = torch.randn(256, 3)
    targets = inputs @ torch.tensor([[1.0], [-2.0], [0.5]])
    task = Module(torch.nn.Linear(3, 1), torch.nn.functional.mse_loss, inputs, targets)
    learning = Learning(task="none", rate=0.05)
    result = outcome("parameter_server", mode="async", steps=60, task=task, learning=learning)
    assert result.loss < 0.01 * task.loss(task.start)
    assert task.gradient(task.start, 0, 1) == pytest.approx(task.gradient(task.start, 0, 1))
    assert np.isfinite(result.loss)
