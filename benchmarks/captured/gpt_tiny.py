"""A GPT so small that the host is the limit, written as nanoGPT is:
`gpt_tiny.py [WIDTH [foreach|fused]]`."""

import sys

import torch
from torch import nn
from torch.nn import functional

HEADS, LAYERS, VOCABULARY, LENGTH, BATCH = 4, 6, 64, 8, 1


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inputs = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.size()
        q, k, v = self.inputs(x).split(width, dim=2)
        q = q.view(batch, length, HEADS, width // HEADS).transpose(1, 2)
        k = k.view(batch, length, HEADS, width // HEADS).transpose(1, 2)
        v = v.view(batch, length, HEADS, width // HEADS).transpose(1, 2)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).contiguous().view(batch, length, width)
        return self.output(y)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.gelu = nn.GELU()

    def forward(self, x):
        x = x + self.attention(self.before(x))
        return x + self.down(self.gelu(self.up(self.between(x))))


class GPT(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens, labels):
        places = torch.arange(tokens.size(1), device=tokens.device)
        x = self.words(tokens) + self.places(places)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.view(-1, logits.size(-1)), labels.view(-1))


def passed(phase):
    """Replaced by whoever wants to know when a phase of a step ends."""


def main(width="16", kind="foreach", steps=4):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = GPT(int(width)).to(device)
    how = {"foreach": True} if kind == "foreach" else {"fused": True}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **how)
    tokens = torch.zeros(BATCH, LENGTH, dtype=torch.long, device=device)
    for _ in range(steps):
        passed("start")
        loss = model(tokens, tokens)
        passed("forward")
        loss.backward()
        passed("backward")
        optimizer.step()
        passed("optimizer")
        optimizer.zero_grad(set_to_none=True)


if __name__ == "__main__":
    main(*sys.argv[1:3])
