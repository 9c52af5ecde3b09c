"""Any torch module with a loss as a task; torch is imported only when a task is made.

Three tasks have data that packages ship: two learn scikit-learn's digits, one the characters of a
text. Each task holds out a fifth of its data, on which loss and accuracy are reported.
"""

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, cast

import numpy as np

from sim.config import reads
from sim.config.errors import InputError
from sim.jobs.sharing.learning.deferred import Gradient, GradientBatch
from sim.jobs.sharing.learning.task import Rows, Vector, drawn_rows

_AT_ONCE = 64  # gradients computed together; more would not fit a core's caches


class Module:
    """A torch module, its loss and its data as a `sim.jobs.sharing.learning.task.LearningTask`.

    `loss(outputs, targets)` returns a scalar tensor. A batch is a choice of rows of the tensors
    `inputs` and `targets`. The loss is reported on all rows, or on the pair of tensors `held_out`.
    If targets are class numbers, the share of right answers is reported, too. If data are `unlike`,
    each of the `workers` draws mostly from its own part of the rows in `order`. Training starts
    from the module's own parameters. Gradients of several workers are computed together
    (`torch.func.vmap` over their weights and batches). Needs the extra `torch`.

    Raises `InputError` for layers that draw random numbers or keep running statistics in training
    (dropout, batch norm). With them, a gradient would depend on the order in which workers are
    simulated.
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
        """The parameters by name; each parameter stacks a version for every vector of weights."""
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
            fault = f"{name or 'module'}: {type(part).__name__} draws numbers or keeps statistics"
            raise InputError("task", fault, "leave it out, or call its eval()")


_CONTEXT = 8  # characters from which the next character is predicted
_FOLD = 5  # every fifth image, or the last fifth of the text, is held out


def digits(*, size: int, seed: int, **split: Any) -> Module:
    """A net of two convolutions (`size` and 2 `size` channels, stride 2) on the 1,797 images of
    8 x 8 of scikit-learn's `load_digits` (Alpaydin and Kaynak 1998); cross-entropy."""
    nn = needed("torch").nn

    def net() -> Any:
        return nn.Sequential(
            nn.Conv2d(1, size, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(size, 2 * size, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(8 * size, 10),
        )

    return _of_digits(net, seed=seed, name="digits", **split)


def residual(*, size: int, seed: int, **split: Any) -> Module:
    """A residual net (He et al. 2016) on the images of `digits`. A convolution of `size` channels
    is followed by a block of two convolutions at 8 x 8 and another block at 4 x 4. The latter has
    2 `size` channels and a 1 x 1 convolution as its shortcut; the mean over places follows. Each
    sample is normalised by itself over all channels (group norm, Wu and He 2018)."""
    torch = needed("torch")
    nn = torch.nn

    def convolution(ins: int, outs: int, kernel: int, stride: int) -> Any:
        layer = nn.Conv2d(ins, outs, kernel, stride=stride, padding=kernel // 2, bias=False)
        return nn.Sequential(layer, nn.GroupNorm(1, outs))

    class Block(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, ins: int, outs: int, stride: int) -> None:
            super().__init__()
            self.first = convolution(ins, outs, 3, stride)
            self.second = convolution(outs, outs, 3, 1)
            alike = ins == outs and stride == 1
            self.beside = nn.Identity() if alike else convolution(ins, outs, 1, stride)

        def forward(self, inputs: Any) -> Any:
            inside = self.second(torch.relu(self.first(inputs)))
            return torch.relu(inside + self.beside(inputs))

    def net() -> Any:
        return nn.Sequential(
            convolution(1, size, 3, 1),
            nn.ReLU(),
            Block(size, size, 1),
            Block(size, 2 * size, 2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(2 * size, 10),
        )

    return _of_digits(net, seed=seed, name="residual", **split)


def characters(*, size: int, seed: int, **split: Any) -> Module:
    """Predict the next character of this project's licence from the last eight: embeddings of
    `size`, a hidden layer of 8 `size` tanh units (Bengio et al. 2003, without the paper's direct
    connections); cross-entropy. A worker's own part is a piece of the text."""
    torch = needed("torch")
    nn = torch.nn
    text = reads.text(reads.packaged_root() / "LICENSE")
    known = {character: number for number, character in enumerate(sorted(set(text)))}
    numbers = torch.tensor([known[character] for character in text])
    inputs, targets = numbers.unfold(0, _CONTEXT, 1)[:-1], numbers[_CONTEXT:]
    held = torch.arange(len(targets)) >= len(targets) * (_FOLD - 1) // _FOLD
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = nn.Sequential(
            nn.Embedding(len(known), size),
            nn.Flatten(),
            nn.Linear(_CONTEXT * size, 8 * size),
            nn.Tanh(),
            nn.Linear(8 * size, len(known)),
        )
    return _task(net, inputs, targets, held, seed=seed, name="characters", **split)


def _of_digits(net: Callable[[], Any], *, seed: int, **options: Any) -> Module:
    """The task of `load_digits` for the net that `net` makes, with parameters drawn by the seed."""
    torch = needed("torch")
    images, labels = needed("sklearn.datasets").load_digits(return_X_y=True)
    inputs = torch.tensor(images / 16.0, dtype=torch.float32).reshape(-1, 1, 8, 8)
    targets = torch.tensor(labels)
    held = torch.arange(len(labels)) % _FOLD == 0
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = net()
    order: Rows = np.argsort(labels[~held.numpy()], kind="stable")
    return _task(made, inputs, targets, held, order=order, seed=seed, **options)


def _task(net: Any, inputs: Any, targets: Any, held: Any, **options: Any) -> Module:
    loss = needed("torch").nn.functional.cross_entropy
    apart = (inputs[held], targets[held])
    return Module(net, loss, inputs[~held], targets[~held], held_out=apart, **options)


def needed(package: str) -> Any:
    """Import a package of the extra `learning`. Raises `InputError` if it is missing."""
    try:
        return import_module(package)
    except ImportError as error:
        fault, remedy = f"this task needs {error.name}", "pip install 'clustersim[learning]'"
        raise InputError("sharing.learning.task", fault, remedy) from None
