"""Elementwise operations; eager torch runs some of them as several kernels or on views.

Each function builds one call on its own tensors of `rows` x `width`. Kernels that belong together
in a step are timed together: scale, mask and softmax of the scores; bias, dropout and residual sum.
A pass is one read or one write of a whole tensor of `rows` x `width`.
"""

from typing import Any

from sim.analysis.calibration.timing.calls.tensors import Random, backward
from sim.analysis.calibration.timing.clock import Call

HEAD = 64  # width of a head
SEQUENCE = 256  # the most tokens of a sequence
DROPOUT = 0.1


def add(rows: int, width: int, random: Random) -> Call:
    x, y = random(rows, width), random(rows, width)
    return lambda: x + y


def accumulate(rows: int, width: int, random: Random) -> Call:
    x, y = random(rows, width), random(rows, width)
    return lambda: x.add_(y)


def copy(rows: int, width: int, random: Random) -> Call:
    x, y = random(rows, width), random(rows, width)
    return lambda: y.copy_(x)


def cast(rows: int, width: int, random: Random) -> Call:
    import torch

    x = random(rows, width)
    return lambda: x.to(torch.bfloat16)


def bias(rows: int, width: int, random: Random) -> Call:
    x, added = random(rows, width), random(width)
    return lambda: x.add_(added)


def bias_gradient(rows: int, width: int, random: Random) -> Call:
    gradient = random(rows, width)
    return lambda: gradient.sum(0)


def gelu(rows: int, width: int, random: Random) -> Call:
    from torch.nn.functional import gelu

    x = random(rows, width)
    return lambda: gelu(x, approximate="tanh")


def gelu_gradient(rows: int, width: int, random: Random) -> Call:
    from torch.nn.functional import gelu

    x = random(rows, width).requires_grad_()
    return backward(gelu(x, approximate="tanh"), [x])


def swiglu(rows: int, width: int, random: Random) -> Call:
    """silu(gate) * up on one tensor that holds both, in two kernels: five passes."""
    x = random(rows, 2 * width)
    return lambda: _gated(x)


def swiglu_gradient(rows: int, width: int, random: Random) -> Call:
    """The backward pass of `swiglu`, which joins both gradients: thirteen passes."""
    x = random(rows, 2 * width).requires_grad_()
    return backward(_gated(x), [x])


def _gated(x: Any) -> Any:
    from torch.nn.functional import silu

    gate, up = x.chunk(2, -1)
    return silu(gate) * up


def softmax(rows: int, width: int, random: Random) -> Call:
    """Scale, mask and softmax of scores, as `sim.model` counts them without fusion: six passes."""
    x, mask = random(rows, width), _mask(width, random)
    return lambda: _masked_softmax(x, mask)


def softmax_gradient(rows: int, width: int, random: Random) -> Call:
    """The backward pass of `softmax`: seven passes."""
    x, mask = random(rows, width).requires_grad_(), _mask(width, random)
    return backward(_masked_softmax(x, mask), [x])


def _mask(width: int, random: Random) -> Any:
    """Return a mask that hides half of the keys from every query."""
    return random(width) > random(width).median()


def _masked_softmax(x: Any, mask: Any) -> Any:
    return (x / 8.0).masked_fill(mask, float("-inf")).softmax(-1)


def dropout(rows: int, width: int, random: Random) -> Call:
    from torch.nn.functional import dropout

    x = random(rows, width)
    return lambda: dropout(x, DROPOUT)


def dropout_gradient(rows: int, width: int, random: Random) -> Call:
    """The backward pass of a dropout: two passes and the mask."""
    from torch.nn.functional import dropout

    x = random(rows, width).requires_grad_()
    return backward(dropout(x, DROPOUT), [x])


def dropout_residual(rows: int, width: int, random: Random) -> Call:
    """Bias, dropout and residual sum: seven passes and the mask."""
    from torch.nn.functional import dropout

    x, y, added = random(rows, width), random(rows, width), random(width)
    return lambda: dropout(x + added, DROPOUT) + y


def merge_heads(rows: int, width: int, random: Random) -> Call:
    """(b, heads, s, head) copied into (b, s, hidden): two passes."""
    x = _split_into_heads(rows, width, random)
    return lambda: x.transpose(1, 2).flatten(2)


def rotary(rows: int, width: int, random: Random) -> Call:
    """x cos + rotate_half(x) sin in five kernels: ten passes."""
    import torch

    x = _split_into_heads(rows, width, random)
    cos, sin = random(x.shape[2], HEAD), random(x.shape[2], HEAD)

    def work() -> Any:
        left, right = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-right, left), dim=-1) * sin

    return work


def _split_into_heads(rows: int, width: int, random: Random) -> Any:
    tokens = min(rows, SEQUENCE)
    return random(max(1, rows // tokens), width // HEAD, tokens, HEAD)
