"""Llama 3 8B or Mixtral 8x7B of transformers, FSDP2, layers recomputed: `llama` or `mixtral`."""

import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard
from transformers import AutoModelForCausalLM, LlamaConfig, MixtralConfig

CONFIGS = {
    "llama": (8192, lambda: LlamaConfig(
        hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
        num_key_value_heads=8, vocab_size=128256, max_position_embeddings=8192, use_cache=False,
    )),
    "mixtral": (4096, lambda: MixtralConfig(num_hidden_layers=32, use_cache=False)),
}  # fmt: skip
LENGTH, config = CONFIGS[sys.argv[1]][0], CONFIGS[sys.argv[1]][1]()


def of_experts(weight):
    """Weights of experts are shared out along their rows, so that each rank holds all experts."""
    return Shard(1) if weight.dim() == 3 else None


dist.init_process_group("nccl")
with torch.device("meta"):
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
model.gradient_checkpointing_enable({"use_reentrant": False})
mesh = init_device_mesh("cuda", (dist.get_world_size(),))
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for layer in model.model.layers:
    fully_shard(layer, mesh=mesh, mp_policy=policy, shard_placement_fn=of_experts)
fully_shard(model, mesh=mesh, mp_policy=policy)
model.to_empty(device="cuda")
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
for step in range(10):
    tokens = torch.randint(config.vocab_size, (1, LENGTH)).to("cuda")
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    print(step, loss.item())
