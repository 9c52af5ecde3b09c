"""Torch calls of memory-bound kernels that eager torch composes of several, or runs on views.

Each makes one call on `rows` x `width` tensors of its own. What a step does in one breath is timed
in one: the scale, mask and softmax of the scores, bias and dropout and residual sum.
"""

from collections.abc import Callable
from typing import Any

Call = Callable[[], Any]
Random = Callable[..., Any]

HEAD = 64  # of the tensors that are split into heads
SEQUENCE = 256  # tokens of a sequence of them, where there are as many
DROPOUT = 0.1


def softmax(rows: int, width: int, random: Random) -> Call:
    """Scale, mask and softmax of scores, as `sim.model` counts them without fusion: six passes."""
    x, mask = random(rows, width), _mask(width, random)
    return lambda: _masked(x, mask)


def softmax_gradient(rows: int, width: int, random: Random) -> Call:
    """Its backward pass: seven passes."""
    x, mask = random(rows, width).requires_grad_(), _mask(width, random)
    return _backward(_masked(x, mask), [x])


def _mask(width: int, random: Random) -> Any:
    """Half of the keys, hidden from every query."""
    return random(width) > random(width).median()


def _masked(x: Any, mask: Any) -> Any:
    return (x / 8.0).masked_fill(mask, float("-inf")).softmax(-1)


def residual(rows: int, width: int, random: Random) -> Call:
    """Bias, dropout and residual sum: seven passes and the mask."""
    from torch.nn.functional import dropout

    x, y, bias = random(rows, width), random(rows, width), random(width)

    def work() -> Any:
        x.copy_(bias)
        return dropout(x, DROPOUT) + y

    return work


def dropout_gradient(rows: int, width: int, random: Random) -> Call:
    """The backward pass of a dropout: two passes and the mask."""
    from torch.nn.functional import dropout

    x = random(rows, width).requires_grad_()
    return _backward(dropout(x, DROPOUT), [x])


def merge_heads(rows: int, width: int, random: Random) -> Call:
    """(b, heads, s, head) copied into (b, s, hidden): two passes."""
    x = _heads(rows, width, random)
    return lambda: x.transpose(1, 2).flatten(2)


def rotary(rows: int, width: int, random: Random) -> Call:
    """x cos + rotate_half(x) sin in five kernels: eleven passes."""
    import torch

    x = _heads(rows, width, random)
    cos, sin = random(x.shape[2], HEAD), random(x.shape[2], HEAD)

    def work() -> Any:
        left, right = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-right, left), dim=-1) * sin

    return work


def _heads(rows: int, width: int, random: Random) -> Any:
    """A tensor of `rows` tokens, split into heads."""
    tokens = min(rows, SEQUENCE)
    return random(max(1, rows // tokens), width // HEAD, tokens, HEAD)


def swiglu(rows: int, width: int, random: Random) -> Call:
    """silu(gate) * up of one tensor of both, in two kernels: five passes."""
    x = random(rows, 2 * width)
    return lambda: _gated(x)


def swiglu_gradient(rows: int, width: int, random: Random) -> Call:
    """Its backward pass, both gradients joined: thirteen passes."""
    x = random(rows, 2 * width).requires_grad_()
    return _backward(_gated(x), [x])


def _gated(x: Any) -> Any:
    from torch.nn.functional import silu

    gate, up = x.chunk(2, -1)
    return silu(gate) * up


def embedding_gradient(rows: int, width: int, random: Random) -> Call:
    """A dense gradient of a table of `rows` into which an eighth as many tokens are added: one
    pass over the table and three over theirs."""
    import torch

    tokens = max(1, rows // 8)
    grad = random(tokens, width)
    where = torch.randint(rows, (tokens,), device=grad.device)
    return lambda: torch.ops.aten.embedding_dense_backward(grad, where, rows, -1, False)


def _backward(out: Any, leaves: list[Any]) -> Call:
    import torch

    grad = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, leaves, grad, retain_graph=True)
