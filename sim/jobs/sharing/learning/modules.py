"""Torch tasks on data that a package ships: digits of scikit-learn, characters of a text.

Each task holds out a fifth of its data, on which loss and accuracy are reported.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from sim.config import reads
from sim.config.errors import InputError
from sim.jobs.sharing.learning.draws import Rows
from sim.jobs.sharing.learning.module import Module

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
    """Import a package of the extra `learning`. Raises `InputError` where it is missing."""
    try:
        return import_module(package)
    except ImportError as error:
        fault, remedy = f"this task needs {error.name}", "pip install 'clustersim[learning]'"
        raise InputError("sharing.learning.task", fault, remedy) from None
