"""Modules whose kernels inductor fuses."""

import torch
from torch import nn
from torch.nn import functional

BATCH, LENGTH, WIDTH, HEADS = 4, 128, 256, 4


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(functional.gelu(self.up(self.norm(x))))


class SwiGlu(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.gate = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, 704, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 704, bias=False), nn.Linear(704, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(WIDTH), Mlp()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shape = (BATCH, LENGTH, 3, HEADS, WIDTH // HEADS)
        q, k, v = self.qkv(self.norm(x)).view(shape).permute(2, 0, 3, 1, 4)
        y = torch.softmax(q @ k.transpose(-1, -2) / 8, -1) @ v
        return self.mlp(x + self.out(y.transpose(1, 2).flatten(-2)))


class Loss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(WIDTH, 4000, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        labels = torch.zeros(BATCH * LENGTH, dtype=torch.long, device=x.device)
        return functional.cross_entropy(self.head(x).flatten(0, 1).float(), labels)
