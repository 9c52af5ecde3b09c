"""Llama 3 8B by torchtitan 0.2.2's own model, checkpointing, FSDP2 and loss, as its Trainer puts
them together; the recordings beside this file are of

    sim capture torchtitan_8b.py --world 8 --out torchtitan-8b-8192-selective.json.gz -- 8192 2 selective
    sim capture torchtitan_8b.py --world 8 --out torchtitan-8b-32768-full.json.gz -- 32768 1 full
    sim capture torchtitan_8b.py --world 8 --out torchtitan-8b-131072-cp4.json.gz -- 131072 1 full 4

(the last number: ranks of context parallelism) with torch 2.13. What torchtitan needs besides (data sets, Triton) was replaced by empty modules.
"""  # noqa: E501 - commands

import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torchtitan.components.loss import cross_entropy_loss
from torchtitan.config.job_config import ActivationCheckpoint
from torchtitan.distributed.activation_checkpoint import apply_ac
from torchtitan.distributed.context_parallel import (
    apply_cp_to_attention_module,
    prepare_context_parallel_input,
)
from torchtitan.models.llama3 import Transformer, llama3_args
from torchtitan.models.llama3.infra.parallelize import _op_sac_save_list, apply_fsdp

LENGTH, BATCH, MODE = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
CONTEXT = int(sys.argv[4]) if len(sys.argv) > 4 else 1
VOCABULARY = 128256

dist.init_process_group("nccl")
arguments = llama3_args["8B"]
arguments.max_seq_len, arguments.vocab_size = LENGTH, VOCABULARY
with torch.device("meta"):
    model = Transformer(arguments)
shape = (dist.get_world_size() // CONTEXT, CONTEXT)
both = init_device_mesh("cuda", shape, mesh_dim_names=("dp_shard", "cp"))
if CONTEXT > 1:
    modules = [block.attention.inner_attention for block in model.layers.values()]
    apply_cp_to_attention_module(modules, both["cp"], "sdpa")
checkpointing = ActivationCheckpoint(mode=MODE, selective_ac_option="op")
apply_ac(model, checkpointing, op_sac_save_list=_op_sac_save_list)
apply_fsdp(model, both._flatten("fsdp"), torch.bfloat16, torch.float32, False)
model.to_empty(device="cuda")
with torch.no_grad():
    model.init_weights(buffer_device=torch.device("cuda"))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
for _ in range(2):
    optimizer.zero_grad()
    tokens, labels = (torch.randint(VOCABULARY, (BATCH, LENGTH)).to("cuda") for _ in range(2))
    places = {}
    if CONTEXT > 1:
        device = torch.device("cuda")
        tokens, labels, places = prepare_context_parallel_input(
            tokens, labels, {}, both["cp"], device
        )
    predicted = model(tokens, **places)
    loss = cross_entropy_loss(predicted, labels)
    del predicted
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
    optimizer.step()
