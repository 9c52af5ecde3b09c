"""Self-attention: projections in and out around softmax(Q K' / sqrt(d)) V."""

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own abbreviation
from torch import nn
from torch.utils.checkpoint import checkpoint

from sim.analysis.calibration.training.modules.rotary import Rotary
from sim.model.fusion import Fusion
from sim.model.transformer import Transformer

DROPOUT = 0.1


class SelfAttention(nn.Module):
    """(b, s, hidden) -> (b, s, hidden), all heads, with grouped queries if the model has them.

    "flash" models run torch's scaled_dot_product_attention; "standard" ones keep the scores.
    If `recomputed`, only Q, K and V are kept, the rest is recomputed in the backward pass.
    """

    mask: torch.Tensor

    def __init__(self, model: Transformer, fusion: Fusion, *, recomputed: bool = False) -> None:
        super().__init__()
        self.model, self.recomputed = model, recomputed
        self.widths = (model.query_width, model.kv_width, model.kv_width)
        parts = (sum(self.widths),) if fusion.packed_projections else self.widths
        self.input_projections = nn.ModuleList(
            nn.Linear(model.hidden, n, bias=model.bias) for n in parts
        )
        self.output_projection = nn.Linear(model.query_width, model.hidden, bias=model.bias)
        rotary = model.positions == "rotary"
        self.rotary = Rotary(model.head, model.seq) if rotary else None
        if model.attention == "standard":
            hidden = torch.ones(model.seq, model.seq, dtype=torch.bool).triu(1)
            mask = hidden if model.causal else torch.zeros_like(hidden)
            self.register_buffer("mask", mask, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self._heads(x)
        if self.rotary is not None:
            q, k = self.rotary(q), self.rotary(k)
        core: Callable[..., torch.Tensor] = (
            self._standard if self.model.attention == "standard" else self._fused
        )
        if self.recomputed:
            core = partial(checkpoint, core, use_reentrant=False)
        projected: torch.Tensor = self.output_projection(core(q, k, v).transpose(1, 2).flatten(2))
        return projected

    def _heads(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, keys and values, each (b, heads, s, head)."""
        parts = [project(x) for project in self.input_projections]
        if len(parts) == 1:
            parts = list(parts[0].split(self.widths, dim=-1))
        q, k, v = (part.unflatten(-1, (-1, self.model.head)).transpose(1, 2) for part in parts)
        return q, k, v

    @property
    def _dropout(self) -> float:
        return DROPOUT if self.model.dropout and self.training else 0.0

    def _fused(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(
            q,
            k,
            v,
            dropout_p=self._dropout,
            is_causal=self.model.causal,
            enable_gqa=self.model.kv_heads < self.model.heads,
        )

    def _standard(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        groups = self.model.heads // self.model.kv_heads
        if groups > 1:
            k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(self.model.head)
        weights = scores.masked_fill(self.mask, float("-inf")).softmax(dim=-1)
        return F.dropout(weights, self._dropout, self.training) @ v
