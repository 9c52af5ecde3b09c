"""Any torch module with a loss as a task; torch is imported only here, when one is made."""

from collections.abc import Callable
from typing import Any

import numpy as np

from sim.sharing.learning.task import Vector, batch_generator


class Module:
    """A torch module, its loss and its data as a `sim.sharing.learning.task.LearningTask`.

    `loss(outputs, targets)` gives a scalar tensor; `inputs` and `targets` are tensors of which a
    batch is a choice of rows. The module's own parameters are the weights to start from.
    Needs the extra `torch`.
    """

    name = "module"

    def __init__(
        self,
        module: Any,
        loss: Callable[[Any, Any], Any],
        inputs: Any,
        targets: Any,
        *,
        batch: int = 32,
        seed: int = 0,
    ) -> None:
        self._module, self._loss = module, loss
        self._inputs, self._targets = inputs, targets
        self._batch, self._seed = batch, seed
        self._parameters = [weight for weight in module.parameters() if weight.requires_grad]
        parts = [weight.detach().double().cpu().numpy().ravel() for weight in self._parameters]
        self.start: Vector = np.concatenate(parts)

    def gradient(self, weights: Vector, rank: int, step: int) -> Vector:
        import torch

        drawn = batch_generator(self._seed, rank, step).integers(0, len(self._inputs), self._batch)
        rows = torch.as_tensor(drawn, device=self._inputs.device)
        self._load(weights)
        self._module.zero_grad()
        self._loss(self._module(self._inputs[rows]), self._targets[rows]).backward()
        slopes = [weight.grad.double().cpu().numpy().ravel() for weight in self._parameters]
        return np.concatenate(slopes)

    def loss(self, weights: Vector) -> float:
        import torch

        self._load(weights)
        with torch.no_grad():
            return float(self._loss(self._module(self._inputs), self._targets))

    def _load(self, weights: Vector) -> None:
        import torch

        first = 0
        with torch.no_grad():
            for weight in self._parameters:
                part = torch.from_numpy(weights[first : first + weight.numel()].copy())
                weight.copy_(part.reshape(weight.shape))
                first += weight.numel()
