"""The feed-forward block: hidden -> ffn, GELU or a gated SiLU, ffn -> hidden."""

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own abbreviation
from torch import nn

from sim.model.fusion import Fusion
from sim.model.transformer import Transformer


class FeedForward(nn.Module):
    """(b, s, hidden) -> (b, s, hidden); gate and up projection are one matrix if packed."""

    def __init__(self, model: Transformer, fusion: Fusion) -> None:
        super().__init__()
        self.gated = model.gated_mlp
        parts: tuple[int, ...] = (model.ffn,)
        if model.gated_mlp:
            parts = (2 * model.ffn,) if fusion.packed_projections else (model.ffn, model.ffn)
        self.input_projections = nn.ModuleList(
            nn.Linear(model.hidden, n, bias=model.bias) for n in parts
        )
        self.output_projection = nn.Linear(model.ffn, model.hidden, bias=model.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [project(x) for project in self.input_projections]
        projected: torch.Tensor = self.output_projection(self._activated(parts))
        return projected

    def _activated(self, parts: list[torch.Tensor]) -> torch.Tensor:
        if not self.gated:
            return F.gelu(parts[0], approximate="tanh")
        gate, up = parts if len(parts) == 2 else parts[0].chunk(2, dim=-1)
        return F.silu(gate) * up
