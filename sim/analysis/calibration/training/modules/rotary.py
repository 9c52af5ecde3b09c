"""Rotary position embedding (Su et al. 2021), composed of torch's elementwise kernels."""

import torch
from torch import nn

BASE = 10_000.0


class Rotary(nn.Module):
    """x cos + rotate_half(x) sin, for queries and keys (Hugging Face's apply_rotary_pos_emb)."""

    cos: torch.Tensor
    sin: torch.Tensor

    def __init__(self, head: int, seq: int) -> None:
        super().__init__()
        frequencies = BASE ** (-torch.arange(0, head, 2).float() / head)
        angles = torch.outer(torch.arange(seq).float(), frequencies).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left, right = x.chunk(2, dim=-1)
        rotated = torch.cat((-right, left), dim=-1)
        return x * self.cos.to(x.dtype) + rotated * self.sin.to(x.dtype)
