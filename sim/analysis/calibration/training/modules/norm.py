"""Layer normalisation and RMS normalisation, as one kernel or as torch composes them."""

import torch
from torch import nn

from sim.model.fusion import Fusion
from sim.model.transformer import Transformer

EPSILON = 1e-5


def norm(model: Transformer, fusion: Fusion) -> nn.Module:
    """The model's normalisation of its hidden width."""
    if model.normalisation == "layernorm":
        return nn.LayerNorm(model.hidden, eps=EPSILON, bias=model.bias)
    fused = fusion.norm or fusion.compiled
    return nn.RMSNorm(model.hidden, eps=EPSILON) if fused else ComposedRMSNorm(model.hidden)


class ComposedRMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) of an fp32 copy, times the gain (Hugging Face's LlamaRMSNorm)."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON)
        return self.weight * (wide * scale).to(x.dtype)
