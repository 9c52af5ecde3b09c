"""The kinds of memory-bound kernels: how many bytes each moves, and its torch call.

Eager torch runs some kinds as several kernels or on views. Kernels that belong together in a step
are timed together: scale, mask and softmax of the scores; bias, dropout and residual sum. Bytes are
counted in `passes`: reads and writes of a whole tensor of rows x `WIDTH`.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from sim.analysis.calibration.timing.calls.tensors import Random, backward, random_tensors
from sim.analysis.calibration.timing.clock import Call
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.model.kernels import BYTES, MemoryBound

CLASSES = 8192  # classes of the cross-entropy
DROPOUT = 0.1
HEAD = 64  # width of a head
SEQUENCE = 256  # the most tokens of a sequence
WIDTH = 1024  # columns of the tensors that memory-bound kernels work on
_STEP = {"fp32": True, "optimizer": True}

Operand = Callable[[int, int, Random], Any]  # makes a tensor for a kernel of rows x width
Make = Callable[[int, int, Random], Call]


def _whole(rows: int, width: int, random: Random) -> Any:
    return random(rows, width)


def _double(rows: int, width: int, random: Random) -> Any:
    return random(rows, 2 * width)


def _row(rows: int, width: int, random: Random) -> Any:
    return random(width)


def _mask(rows: int, width: int, random: Random) -> Any:
    """Return a mask that hides half of the keys from every query."""
    return random(width) > random(width).median()


def _heads(rows: int, width: int, random: Random) -> Any:
    """Return a tensor of shape (b, heads, s, head)."""
    tokens = min(rows, SEQUENCE)
    return random(max(1, rows // tokens), width // HEAD, tokens, HEAD)


def _angles(rows: int, width: int, random: Random) -> Any:
    return random(min(rows, SEQUENCE), HEAD)


def _runs(operation: Callable[..., Any] | str, *operands: Operand, **options: Any) -> Make:
    """Return a function that makes calls of an operation. If the operation is a name, it is a
    function of torch.nn.functional, which gets the options."""

    def make(rows: int, width: int, random: Random) -> Call:
        run, tensors = _known(operation), [operand(rows, width, random) for operand in operands]
        return lambda: run(*tensors, **options)

    return make


def _gradient(operation: Callable[..., Any] | str, *operands: Operand, **options: Any) -> Make:
    """Return a function that makes calls of an operation's backward pass, which computes the
    gradients of all operands."""

    def make(rows: int, width: int, random: Random) -> Call:
        tensors = [operand(rows, width, random) for operand in operands]
        inputs = [tensor.requires_grad_() for tensor in tensors if tensor.is_floating_point()]
        return backward(_known(operation)(*tensors, **options), inputs, allow_unused=True)

    return make


def _known(operation: Callable[..., Any] | str) -> Callable[..., Any]:
    if not isinstance(operation, str):
        return operation
    function: Callable[..., Any] = getattr(import_module("torch.nn.functional"), operation)
    return function


def _layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    from torch.nn.functional import layer_norm

    return layer_norm(x, weight.shape, weight, bias)


def _rms_norm(x: Any, weight: Any) -> Any:
    from torch.nn.functional import rms_norm

    return rms_norm(x, weight.shape, weight)


def _gated(x: Any) -> Any:
    """silu(gate) * up, where one tensor holds gate and up: two kernels with five reads and writes.
    The backward pass has thirteen, since it also joins both gradients."""
    from torch.nn.functional import silu

    gate, up = x.chunk(2, -1)
    return silu(gate) * up


def _masked_softmax(x: Any, mask: Any) -> Any:
    """Scale, mask and softmax of scores, which `sim.model` counts without fusion: six reads and
    writes, and seven in the backward pass."""
    return (x / 8.0).masked_fill(mask, float("-inf")).softmax(-1)


def _dropout_residual(x: Any, y: Any, bias: Any) -> Any:
    """Bias, dropout and residual sum: seven reads and writes, and the mask."""
    from torch.nn.functional import dropout

    return dropout(x + bias, DROPOUT) + y


def _rotary(x: Any, cos: Any, sin: Any) -> Any:
    """x cos + rotate_half(x) sin in five kernels: ten reads and writes."""
    import torch

    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-right, left), dim=-1) * sin


def _merge_heads(x: Any) -> Any:
    """(b, heads, s, head) copied into (b, s, hidden): a read and a write."""
    return x.transpose(1, 2).flatten(2)


def _adam(**how: Any) -> Make:
    def make(rows: int, width: int, random: Random) -> Call:
        import torch

        optimizer = torch.optim.AdamW(_parameters(rows, width, random), **how)
        return lambda: optimizer.step()

    return make


def _gradient_norm(rows: int, width: int, random: Random) -> Call:
    import torch

    gradients = [parameter.grad for parameter in _parameters(rows, width, random)]
    return lambda: torch.nn.utils.get_total_norm(gradients)


def _clip_gradients(rows: int, width: int, random: Random) -> Call:
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


def _embedding(rows: int, width: int, random: Random) -> Call:
    """Look up as many tokens as the table has rows."""
    from torch.nn.functional import embedding

    table = random(rows, width)
    tokens = _random_indices(rows, rows, table.device)
    return lambda: embedding(tokens, table)


def _embedding_gradient(rows: int, width: int, random: Random) -> Call:
    """The dense gradient of a table with `rows` rows, to which the gradients of rows / 8 tokens are
    added. The table is written once; the tokens' gradients are read or written three times."""
    import torch

    tokens = max(1, rows // 8)
    gradient = random(tokens, width)
    indices = _random_indices(tokens, rows, gradient.device)
    return lambda: torch.ops.aten.embedding_dense_backward(gradient, indices, rows, -1, False)


def _cross_entropy(rows: int, width: int, random: Random) -> Call:
    from torch.nn.functional import cross_entropy

    logits = _logits(rows, width, random)
    targets = _random_indices(len(logits), CLASSES, logits.device)
    return lambda: cross_entropy(logits, targets)


def _cross_entropy_gradient(rows: int, width: int, random: Random) -> Call:
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
    counts them, and its torch call, made from (rows, width, maker of random tensors). `fp32` is set
    if a GPU keeps the tensor in fp32 although activations are bf16. One call of an `optimizer`
    works on all parameters of a rank."""

    passes: float
    call: Make
    fp32: bool = False
    optimizer: bool = False

    def precision(self, device: str) -> str:
        return "bf16" if device == "cuda" and not self.fp32 else "fp32"

    def row(self, device: str) -> float:
        """Return the bytes that the kernel reads and writes for each row of the tensor."""
        return self.passes * WIDTH * BYTES[self.precision(device)]


# Kinds by the last words of kernels' names in `sim.model`, with the passes that `sim.model` counts;
# "stream" stands for every other kernel.
KINDS: dict[str, MemoryBoundKind] = {
    "stream": MemoryBoundKind(3, _runs(lambda x, y: x + y, _whole, _whole)),
    "copy": MemoryBoundKind(2, _runs(lambda x, y: y.copy_(x), _whole, _whole)),
    "cast": MemoryBoundKind(1.5, _runs(lambda x: x.bfloat16(), _whole), fp32=True),
    "norm": MemoryBoundKind(2, _runs(_layer_norm, _whole, _row, _row)),
    "norm grad": MemoryBoundKind(5, _gradient(_layer_norm, _whole, _row, _row)),
    "rms norm": MemoryBoundKind(2, _runs(_rms_norm, _whole, _row)),
    "rms norm grad": MemoryBoundKind(5, _gradient(_rms_norm, _whole, _row)),
    "bias": MemoryBoundKind(2, _runs(lambda x, bias: x.add_(bias), _whole, _row)),
    "bias grad": MemoryBoundKind(1, _runs(lambda gradient: gradient.sum(0), _whole)),
    "accumulate": MemoryBoundKind(3, _runs(lambda x, y: x.add_(y), _whole, _whole)),
    "softmax": MemoryBoundKind(6, _runs(_masked_softmax, _whole, _mask)),
    "softmax grad": MemoryBoundKind(7, _gradient(_masked_softmax, _whole, _mask)),
    "gelu": MemoryBoundKind(2, _runs("gelu", _whole, approximate="tanh")),
    "gelu grad": MemoryBoundKind(3, _gradient("gelu", _whole, approximate="tanh")),
    "swiglu": MemoryBoundKind(5, _runs(_gated, _double)),
    "swiglu grad": MemoryBoundKind(13, _gradient(_gated, _double)),
    "rotary": MemoryBoundKind(10, _runs(_rotary, _heads, _angles, _angles)),
    "merge heads": MemoryBoundKind(2, _runs(_merge_heads, _heads)),
    "merge heads grad": MemoryBoundKind(2, _runs(_merge_heads, _heads)),
    "dropout": MemoryBoundKind(2.25, _runs("dropout", _whole, p=DROPOUT)),
    "dropout grad": MemoryBoundKind(2.25, _gradient("dropout", _whole, p=DROPOUT)),
    "dropout residual": MemoryBoundKind(7.25, _runs(_dropout_residual, _whole, _whole, _row)),
    "residual grad": MemoryBoundKind(2.25, _gradient("dropout", _whole, p=DROPOUT)),
    "norm residual grad": MemoryBoundKind(3, _runs(lambda x, y: x + y, _whole, _whole)),
    "embedding": MemoryBoundKind(2, _embedding),
    "embedding grad": MemoryBoundKind(1.375, _embedding_gradient),
    "cross-entropy": MemoryBoundKind(2, _cross_entropy),
    "cross-entropy grad": MemoryBoundKind(4, _cross_entropy_gradient),
    "gradient norm": MemoryBoundKind(1, _gradient_norm, **_STEP),
    "clip gradients": MemoryBoundKind(2, _clip_gradients, **_STEP),
    "adam": MemoryBoundKind(7, _adam(fused=True), **_STEP),
    "adam for-each": MemoryBoundKind(20, _adam(foreach=True), **_STEP),
}


def kernel(name: str, size: float, device: str) -> MemoryBound:
    """Return the memory-bound kernel of a kind that moves about `size` bytes."""
    row = KINDS[name].row(device)
    return MemoryBound(name=name, bytes=max(1, round(size / row)) * row)


def call(kernel: MemoryBound, device: str) -> Call:
    """Return a call that runs a kernel once. Raises `InputError` for a kernel of unknown kind."""
    if kernel.name not in KINDS:
        raise InputError("calibration", f"no torch call for {kernel.name!r}", "leave it out")
    kind = KINDS[kernel.name]
    rows = round(kernel.bytes / kind.row(device))
    return kind.call(rows, WIDTH, random_tensors(device, kind.precision(device)))
