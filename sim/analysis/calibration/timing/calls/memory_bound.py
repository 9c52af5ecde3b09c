"""The kinds of memory-bound kernels: how many bytes each moves, and its torch call."""

from collections.abc import Callable
from typing import Any

from sim.analysis.calibration.timing.calls import elementwise
from sim.analysis.calibration.timing.calls.tensors import Random, backward, random_tensors
from sim.analysis.calibration.timing.clock import Call
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.model.kernels import BYTES, MemoryBound

CLASSES = 8192  # classes of the cross-entropy
WIDTH = 1024  # columns of the tensors that memory-bound kernels work on
_STEP = {"fp32": True, "optimizer": True}


def layer_norm(rows: int, width: int, random: Random) -> Call:
    return _forward(_layer_norm, rows, width, random)


def layer_norm_gradient(rows: int, width: int, random: Random) -> Call:
    return _gradient(_layer_norm, rows, width, random)


def rms_norm(rows: int, width: int, random: Random) -> Call:
    return _forward(_rms_norm, rows, width, random)


def rms_norm_gradient(rows: int, width: int, random: Random) -> Call:
    return _gradient(_rms_norm, rows, width, random)


def _forward(norm: Callable[..., Any], rows: int, width: int, random: Random) -> Call:
    x, weight, bias = random(rows, width), random(width), random(width)
    return lambda: norm(x, weight, bias)


def _gradient(norm: Callable[..., Any], rows: int, width: int, random: Random) -> Call:
    inputs = [random(*shape).requires_grad_() for shape in ((rows, width), (width,), (width,))]
    return backward(norm(*inputs), inputs, allow_unused=True)


def _layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    from torch.nn.functional import layer_norm

    return layer_norm(x, weight.shape, weight, bias)


def _rms_norm(x: Any, weight: Any, _: Any) -> Any:
    from torch.nn.functional import rms_norm

    return rms_norm(x, weight.shape, weight)


def adam(rows: int, width: int, random: Random) -> Call:
    import torch

    optimizer = torch.optim.AdamW(_parameters(rows, width, random), fused=True)
    return lambda: optimizer.step()


def adam_for_each(rows: int, width: int, random: Random) -> Call:
    import torch

    optimizer = torch.optim.AdamW(_parameters(rows, width, random), foreach=True)
    return lambda: optimizer.step()


def gradient_norm(rows: int, width: int, random: Random) -> Call:
    import torch

    gradients = [parameter.grad for parameter in _parameters(rows, width, random)]
    return lambda: torch.nn.utils.get_total_norm(gradients)


def clip_gradients(rows: int, width: int, random: Random) -> Call:
    import torch

    parameters = _parameters(rows, width, random)
    norm = torch.tensor(1.0, device=parameters[0].device)
    return lambda: torch.nn.utils.clip_grads_with_norm_(parameters, 1.0, norm)


def _parameters(rows: int, width: int, random: Random) -> list[Any]:
    """Return parameters of at most `width` x `width`, with gradients."""
    import torch

    parameters = []
    for first in range(0, rows, width):
        parameter = torch.nn.Parameter(random(min(width, rows - first), width))
        parameter.grad = torch.randn_like(parameter)
        parameters.append(parameter)
    return parameters


def embedding(rows: int, width: int, random: Random) -> Call:
    """Look up as many tokens as the table has rows."""
    from torch.nn.functional import embedding

    table = random(rows, width)
    tokens = _random_indices(rows, rows, table.device)
    return lambda: embedding(tokens, table)


def embedding_gradient(rows: int, width: int, random: Random) -> Call:
    """The dense gradient of a table of `rows`, to which an eighth as many tokens are added: one
    pass over the table and three over the tokens' gradients."""
    import torch

    tokens = max(1, rows // 8)
    gradient = random(tokens, width)
    indices = _random_indices(tokens, rows, gradient.device)
    return lambda: torch.ops.aten.embedding_dense_backward(gradient, indices, rows, -1, False)


def cross_entropy(rows: int, width: int, random: Random) -> Call:
    from torch.nn.functional import cross_entropy

    logits = _logits(rows, width, random)
    targets = _random_indices(len(logits), CLASSES, logits.device)
    return lambda: cross_entropy(logits, targets)


def cross_entropy_gradient(rows: int, width: int, random: Random) -> Call:
    import torch
    from torch.nn.functional import cross_entropy

    logits = _logits(rows, width, random).requires_grad_()
    loss = cross_entropy(logits, _random_indices(len(logits), CLASSES, logits.device))
    return lambda: torch.autograd.grad(loss, logits, retain_graph=True)


def _logits(rows: int, width: int, random: Random) -> Any:
    return random(max(1, rows * width // CLASSES), CLASSES)


def _random_indices(count: int, below: int, device: Any) -> Any:
    import torch

    return torch.randint(below, (count,), device=device)


@dataclass(frozen=True, slots=True)
class MemoryBoundKind:
    """A kind of memory-bound kernel: its passes over a tensor of rows x `WIDTH`, as `sim.model`
    counts them, and its torch call of (rows, width, random tensors). `fp32` is set where a GPU
    keeps fp32 although activations are bf16. One call of an `optimizer` works on all parameters of
    a rank."""

    passes: float
    call: Callable[[int, int, Random], Call]
    fp32: bool = False
    optimizer: bool = False

    def precision(self, device: str) -> str:
        return "bf16" if device == "cuda" and not self.fp32 else "fp32"

    def row(self, device: str) -> float:
        """Return the bytes that a row of the tensor counts for."""
        return self.passes * WIDTH * BYTES[self.precision(device)]


# Kinds by the last words of the names that `sim.model` gives its kernels, with the passes that
# `sim.model` counts; "stream" stands for every other kernel.
KINDS: dict[str, MemoryBoundKind] = {
    "stream": MemoryBoundKind(3, elementwise.add),
    "copy": MemoryBoundKind(2, elementwise.copy),
    "cast": MemoryBoundKind(1.5, elementwise.cast, fp32=True),
    "norm": MemoryBoundKind(2, layer_norm),
    "norm grad": MemoryBoundKind(5, layer_norm_gradient),
    "rms norm": MemoryBoundKind(2, rms_norm),
    "rms norm grad": MemoryBoundKind(5, rms_norm_gradient),
    "bias": MemoryBoundKind(2, elementwise.bias),
    "bias grad": MemoryBoundKind(1, elementwise.bias_gradient),
    "accumulate": MemoryBoundKind(3, elementwise.accumulate),
    "softmax": MemoryBoundKind(6, elementwise.softmax),
    "softmax grad": MemoryBoundKind(7, elementwise.softmax_gradient),
    "gelu": MemoryBoundKind(2, elementwise.gelu),
    "gelu grad": MemoryBoundKind(3, elementwise.gelu_gradient),
    "swiglu": MemoryBoundKind(5, elementwise.swiglu),
    "swiglu grad": MemoryBoundKind(13, elementwise.swiglu_gradient),
    "rotary": MemoryBoundKind(10, elementwise.rotary),
    "merge heads": MemoryBoundKind(2, elementwise.merge_heads),
    "merge heads grad": MemoryBoundKind(2, elementwise.merge_heads),
    "dropout": MemoryBoundKind(2.25, elementwise.dropout),
    "dropout grad": MemoryBoundKind(2.25, elementwise.dropout_gradient),
    "dropout residual": MemoryBoundKind(7.25, elementwise.dropout_residual),
    "residual grad": MemoryBoundKind(2.25, elementwise.dropout_gradient),
    "norm residual grad": MemoryBoundKind(3, elementwise.add),
    "embedding": MemoryBoundKind(2, embedding),
    "embedding grad": MemoryBoundKind(1.375, embedding_gradient),
    "cross-entropy": MemoryBoundKind(2, cross_entropy),
    "cross-entropy grad": MemoryBoundKind(4, cross_entropy_gradient),
    "gradient norm": MemoryBoundKind(1, gradient_norm, **_STEP),
    "clip gradients": MemoryBoundKind(2, clip_gradients, **_STEP),
    "adam": MemoryBoundKind(7, adam, **_STEP),
    "adam for-each": MemoryBoundKind(20, adam_for_each, **_STEP),
}


def kernel(name: str, size: float, device: str) -> MemoryBound:
    """Return the memory-bound kernel of a kind that moves about `size` bytes."""
    row = KINDS[name].row(device)
    return MemoryBound(name=name, bytes=max(1, round(size / row)) * row)


def call(kernel: MemoryBound, device: str) -> Call:
    """Return one execution of a kernel. Raises `InputError` for a kernel of unknown kind."""
    if kernel.name not in KINDS:
        raise InputError("calibration", f"no torch call for {kernel.name!r}", "leave it out")
    kind = KINDS[kernel.name]
    rows = round(kernel.bytes / kind.row(device))
    return kind.call(rows, WIDTH, random_tensors(device, kind.precision(device)))
