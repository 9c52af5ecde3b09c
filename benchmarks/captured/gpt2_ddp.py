"""GPT-2 trained as nanoGPT trains it: DDP, eight ranks' share of 40 microbatches of 12 sequences,
and an evaluation of twice 200 batches before the first step. `compile` compiles the model.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

LAYERS, HEADS, WIDTH, VOCABULARY, LENGTH, BATCH, MICRO, EVALUATION = (
    12,
    12,
    768,
    50304,
    1024,
    12,
    40,
    200,
)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before_attention = nn.LayerNorm(WIDTH, bias=False)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.before_mlp = nn.LayerNorm(WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        shape = (*x.shape[:2], HEADS, WIDTH // HEADS)
        q, k, v = self.qkv(self.before_attention(x)).split(WIDTH, 2)
        q, k, v = (part.view(shape).transpose(1, 2) for part in (q, k, v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).contiguous().view(x.shape))
        return x + self.down(functional.gelu(self.up(self.before_mlp(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH, bias=False)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.tokens.weight = self.head.weight

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.places(torch.arange(LENGTH, device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))


def batch():
    tokens = torch.randint(VOCABULARY, (2, BATCH, LENGTH)).pin_memory()
    return tokens.to("cuda", non_blocking=True)


@torch.no_grad()
def evaluated(model):
    model.eval()
    losses = torch.zeros(2 * EVALUATION)
    for number in range(2 * EVALUATION):
        with torch.amp.autocast("cuda", dtype=torch.bfloat16):
            losses[number] = model(*batch()).item()
    model.train()
    return losses.mean()


dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.backends.cuda.matmul.allow_tf32 = True
model = Model().to("cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), fused=True)
if "compile" in sys.argv:
    model = torch.compile(model)
model = DistributedDataParallel(model, device_ids=[rank])
micro = MICRO // dist.get_world_size()
print(f"before training: loss {evaluated(model):.3f}")
for _ in range(10):
    for number in range(micro):
        model.require_backward_grad_sync = number == micro - 1
        with torch.amp.autocast("cuda", dtype=torch.bfloat16):
            loss = model(*batch()) / micro
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
