"""The calls of torch whose host time is measured: layers in a row, and optimizers.

Each call is made as a script makes it, through its module if it has one. The tensors are so small
that no device limits the time. The order matters: `fitting.device_profile.host_table` subtracts the
known operators of a call from its time, and divides the rest among its new operators.
"""

from collections.abc import Callable
from typing import Any

from sim.config.dataclass import dataclass

SHAPE = (1, 8, 8)  # of the tensors given to layers: sequences, tokens, channels
HEAD = 4  # channels of a head
LISTS = (8, 64)  # how many tensors an optimizer is given

Layer = Callable[[Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCall:
    """A layer that `make` builds anew for each call. The input of a `chained` layer is the result
    of the layer before it; other layers get a tensor of `SHAPE`."""

    name: str
    make: Callable[[], Layer]
    chained: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerCall:
    """A call for a list of parameters with gradients. If `counters` is set, the optimizer keeps its
    step counters on the host, and operators on these counters are not counted."""

    name: str
    make: Callable[[list[Any]], Callable[[], Any]]
    counters: bool = False


def layers(device: str) -> list[LayerCall]:
    """Return layers of transformers, and the operators of which layers are composed."""
    import torch
    from torch import nn
    from torch.nn import functional

    batch, tokens, wide = SHAPE
    labels = torch.zeros(batch * tokens, dtype=torch.long, device=device)
    words = torch.zeros(batch, tokens, dtype=torch.long, device=device)

    def attention(y: Any) -> Any:
        heads = y.view(batch, tokens, -1, HEAD).transpose(1, 2)
        attended = functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
        return attended.transpose(1, 2).reshape(batch, tokens, wide)

    def table() -> Layer:
        embedding = nn.Embedding(wide, wide, device=device)
        return lambda _: embedding(words)

    def loss(y: Any) -> Any:
        return functional.cross_entropy(y.flatten(0, 1), labels)

    def formula(name: str, layer: Layer) -> LayerCall:
        return LayerCall(name=name, make=lambda: layer)

    def module(name: str, build: Callable[[], Any]) -> LayerCall:
        return LayerCall(name=name, make=lambda: build().to(device))

    return [
        formula("view", lambda y: y.transpose(1, 2)),
        formula("sum of two", lambda y: y + y),
        formula("product", lambda y: y * y),
        formula("quotient", lambda y: y / 2.0),
        formula("negative", lambda y: -y),
        formula("difference", lambda y: y - y),
        formula("square", lambda y: y.pow(2)),
        formula("total", lambda y: y + y.sum(-1, keepdim=True)),
        formula("mean", lambda y: y + y.mean(-1, keepdim=True)),
        formula("inverse root", lambda y: y.rsqrt()),
        formula("cast", lambda y: y.bfloat16().float()),
        formula("copy", lambda y: y.transpose(1, 2).contiguous()),
        formula("halves", lambda y: torch.cat(y.split(HEAD, -1), -1)),
        module("relu", nn.ReLU),
        module("gelu", nn.GELU),
        module("silu", nn.SiLU),
        module("tanh", nn.Tanh),
        module("sigmoid", nn.Sigmoid),
        module("softmax", lambda: nn.Softmax(-1)),
        module("dropout", lambda: nn.Dropout(0.1)),
        module("layer norm", lambda: nn.LayerNorm(wide)),
        module("RMS norm", lambda: nn.RMSNorm(wide)),
        module("linear", lambda: nn.Linear(wide, wide, bias=False)),
        module("linear with bias", lambda: nn.Linear(wide, wide)),
        formula("batched product", lambda y: y @ y.transpose(1, 2)),
        formula("attention", attention),
        LayerCall(name="embedding", make=table, chained=False),
        LayerCall(name="cross-entropy", make=lambda: loss, chained=False),
    ]


def optimizers() -> list[OptimizerCall]:
    """Return steps of optimizers on lists, a fused step, and gradient clipping; all these calls
    belong to the optimizer's phase."""
    import torch

    clip = torch.nn.utils.clip_grad_norm_

    def adam(**how: Any) -> Callable[[list[Any]], Callable[[], Any]]:
        return lambda weights: torch.optim.AdamW(weights, **how).step

    def momentum(**how: Any) -> Callable[[list[Any]], Callable[[], Any]]:
        return lambda weights: torch.optim.SGD(weights, lr=1e-3, momentum=0.9, **how).step

    return [
        OptimizerCall(name="SGD with momentum, foreach", make=momentum(foreach=True)),
        OptimizerCall(name="AdamW, fused", make=adam(fused=True)),
        OptimizerCall(name="AdamW, foreach", make=adam(foreach=True), counters=True),
        OptimizerCall(name="clipping", make=lambda weights: lambda: clip(weights, 1.0)),
    ]
