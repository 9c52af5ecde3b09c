"""Small training scripts, captured once each."""

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from sim.jobs.capturing.device import OLDEST, release
from sim.jobs.recorded.recording import Recording

HERE = Path(__file__).parent
try:
    there = release(version("torch")) >= OLDEST
except PackageNotFoundError:
    there = False
collect_ignore_glob = [
    "recordings/*",
    # torch's inside has to be known
    *(
        []
        if there
        else {path.name for path in HERE.glob("test_*.py")} - {"test_files.py", "test_values.py"}
    ),
]

MODEL = """
import os
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

LAYERS, WIDTH, HEADS, VOCABULARY, LENGTH, BATCH = 2, 256, 4, 1000, 128, 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).split(WIDTH, -1)
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(-2))
        return x + self.down(F.gelu(self.up(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def train(model, steps=3, micro=1, again=None):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for _ in range(steps):
        for _ in range(micro):
            tokens = torch.randint(VOCABULARY, (BATCH, LENGTH)).to("cuda")
            with torch.amp.autocast("cuda", dtype=torch.bfloat16):
                logits = model(tokens)
            F.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
"""

DDP = """
dist.init_process_group("nccl")
model = nn.parallel.DistributedDataParallel(Model().to("cuda"), device_ids=[0], bucket_cap_mb=1)
train(model)
"""

Capture = Callable[..., Recording]


@pytest.fixture(scope="session")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    """Captures the model above with the end of a script; each pair of script and world once."""
    from sim.jobs.capturing.capture import capture_script

    known: dict[tuple[str, int, int], Recording] = {}

    def capture(end: str = DDP, world: int = 16, rank: int = 0) -> Recording:
        if (end, world, rank) not in known:
            path: Path = tmp_path_factory.mktemp("scripts") / "train.py"
            path.write_text(MODEL + end)
            (known[end, world, rank],) = capture_script(path, world=world, rank=rank)
        return known[end, world, rank]

    return capture
