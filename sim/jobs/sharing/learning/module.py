"""Any torch module with a loss as a task; torch is imported only when a task is made."""

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np

from sim.config.errors import InputError
from sim.jobs.sharing.learning.deferred import Gradient, GradientBatch
from sim.jobs.sharing.learning.draws import Rows, drawn_rows
from sim.jobs.sharing.learning.task import Vector

_AT_ONCE = 64  # gradients; more of them do not fit the caches of a core


class Module:
    """A torch module, its loss and its data as a `sim.jobs.sharing.learning.task.LearningTask`.

    `loss(outputs, targets)` returns a scalar tensor. A batch is a choice of rows of the tensors
    `inputs` and `targets`. The loss is reported on all rows, or on the pair of tensors `held_out`;
    if targets are class numbers, so is the share of right answers. Where data are `unlike`,
    each of the `workers` draws mostly from its own part of the rows in `order`. Training starts
    from the module's own parameters. Gradients of several workers are computed together
    (`torch.func.vmap` over their weights and batches). Needs the extra `torch`.

    Raises `InputError` for layers that draw random numbers or keep running statistics in training
    (dropout, batch norm): a gradient would depend on the order in which workers are simulated.
    """

    def __init__(
        self,
        module: Any,
        loss: Callable[[Any, Any], Any],
        inputs: Any,
        targets: Any,
        *,
        held_out: tuple[Any, Any] | None = None,
        batch: int = 32,
        seed: int = 0,
        unlike: float = 0.0,
        workers: int = 1,
        order: Rows | None = None,
        name: str = "module",
    ) -> None:
        _refuse_chance(module)
        self.name, self.seed, self.unlike, self.workers = name, seed, unlike, workers
        self._module, self._loss = module, loss
        self._inputs, self._targets, self._batch = inputs, targets, batch
        self._held_out = held_out or (inputs, targets)
        self._order = np.arange(len(inputs)) if order is None else order
        trained = {
            key: parameter
            for key, parameter in module.named_parameters()
            if parameter.requires_grad
        }
        self._shapes = {key: tuple(weight.shape) for key, weight in trained.items()}
        parts = [weight.detach().double().cpu().numpy().ravel() for weight in trained.values()]
        self.start: Vector = np.concatenate(parts)
        self._like = next(iter(trained.values()))
        self._gradients = _gradients(module, loss)
        self._waiting = GradientBatch(self._take, _AT_ONCE)
        self._answered: tuple[Vector, Any] = (np.zeros(0), None)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shape of every parameter."""
        return tuple(self._shapes.values())

    def gradient(self, weights: Vector, rank: int, step: int) -> Vector:
        """A deferred gradient, computed together with other gradients whose weights are known."""
        return cast(Vector, Gradient(self._waiting, weights, rank, step))

    def loss(self, weights: Vector) -> float:
        with _one_thread():
            return float(self._loss(self._answers(weights), self._held_out[1]))

    def accuracy(self, weights: Vector) -> float | None:
        targets = self._held_out[1]
        answers = self._answers(weights)
        if targets.is_floating_point() or answers.ndim != targets.ndim + 1:
            return None
        return float((answers.argmax(1) == targets).double().mean())

    def _answers(self, weights: Vector) -> Any:
        """Outputs for held-out data; the last outputs are kept, as loss and accuracy share them."""
        import torch

        if self._answered[0] is not weights:
            with torch.no_grad():
                split = {key: part[0] for key, part in self._split([weights]).items()}
                answers = torch.func.functional_call(self._module, split, (self._held_out[0],))
            self._answered = (weights, answers)
        return self._answered[1]

    def _take(self, gradients: Sequence[Gradient]) -> Vector:
        import torch

        # For a single gradient torch uses other kernels, whose sums are rounded differently.
        asked = list(gradients) * 2 if len(gradients) == 1 else gradients
        drawn = [drawn_rows(self._order, self, pull.rank, pull.step, self._batch) for pull in asked]
        rows = torch.as_tensor(np.stack(drawn), device=self._inputs.device)
        with _one_thread():
            weights = self._split([pull.weights for pull in asked])
            slopes = self._gradients(weights, self._inputs[rows], self._targets[rows])
            flat = torch.cat([slopes[key].flatten(1) for key in self._shapes], dim=1)
            found: Vector = flat.double().cpu().numpy()
        return found[: len(gradients)]

    def _split(self, weights: list[Vector]) -> dict[str, Any]:
        """The parameters by name, each stacked with one version for each vector of weights."""
        import torch

        like = self._like
        every = torch.from_numpy(np.stack(weights)).to(device=like.device, dtype=like.dtype)
        sizes = [int(np.prod(shape)) for shape in self._shapes.values()]
        parts = zip(self._shapes.items(), torch.split(every, sizes, dim=1), strict=True)
        return {key: part.reshape(len(weights), *shape) for (key, shape), part in parts}


def _gradients(module: Any, loss: Callable[[Any, Any], Any]) -> Any:
    """A function from weights, inputs and targets of many workers to each worker's gradient."""
    import torch

    def of_worker(weights: dict[str, Any], inputs: Any, targets: Any) -> Any:
        return loss(torch.func.functional_call(module, weights, (inputs,)), targets)

    return torch.func.vmap(torch.func.grad(of_worker))


@contextmanager
def _one_thread() -> Any:
    """Let torch compute with one thread: threads gain nothing on small tensors, and wait for each
    other on a busy machine."""
    import torch

    usual = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(usual)


def _refuse_chance(module: Any) -> None:
    import torch

    draws = torch.nn.modules.dropout._DropoutNd
    counts = torch.nn.modules.batchnorm._NormBase
    for name, part in module.named_modules():
        counting = isinstance(part, counts) and part.track_running_stats
        drawing = isinstance(part, draws) and part.p > 0.0
        if part.training and (counting or drawing):
            fault = f"{name or 'module'}: {type(part).__name__} draws or counts while it trains"
            raise InputError("task", fault, "leave it out, or call its eval()")
