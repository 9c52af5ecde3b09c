"""All arguments of Megatron-LM that are known, and those that say nothing of a step."""

import re

from sim.frameworks.command_line import parsed, written
from sim.frameworks.framework import Framework
from sim.frameworks.megatron.experts import EXPERTS
from sim.frameworks.megatron.layout import LAYOUT, SEARCH
from sim.frameworks.megatron.model import MODEL

# What says nothing of the time or the memory of a training step.
_SILENT = re.compile(
    r"(min-|decoupled-)?lr\b.*|.*-path|.*-dir|.*-file|load|save|log-.*|.*-interval|eval-.*|train-.*|seed"
    "|weight-decay.*|adam-.*|clip-grad|init-method-.*|tokenizer-.*|vocab-file|merge-file|split|data-(impl|cache.*|args.*|sharding)"
    "|.*-warmup.*|num-workers|distributed-(backend|timeout.*)|exit-.*|ckpt-.*|dist-ckpt-.*|wandb-.*"
    "|tensorboard-.*|timing-.*|rotary-.*|rope-.*|use-rope-scaling|norm-epsilon|layernorm-epsilon"
    "|use-mcore-models|override-.*|no-(load|save)-.*|finetune|mock-data|reset-.*|eod-.*|master-.*"
    "|nproc[-_]per[-_]node|nnodes|node[-_]rank|rdzv.*|moe-aux-loss-coeff|moe-router-(load|score|bias|topk-scaling).*"
    "|moe-z-loss-coeff|initial-loss-scale|loss-scale.*|manual-gc.*|ddp-average.*"
    "|attention-softmax-in-fp32|apply-layernorm-1p|async-save|use-dist-ckpt"
    "|auto-detect-ckpt-format|no-create-.*|no-mmap-.*|num-dataset-.*|dataloader-.*|lr-.*|optimizer-.*-lr"
)

# What Megatron-LM does anyway, or what the stack megatron-core says of it.
_ASSUMED = (
    *("transformer-impl", "use-flash-attn", "accumulate-allreduce-grads-in-fp32"),
    *("cross-entropy-loss-fusion", "cross-entropy-fusion-impl", "moe-grouped-gemm"),
    *(
        "moe-permute-fusion",
        "overlap-p2p-communication",
        "no-async-tensor-model-parallel-allreduce",
    ),
    *("use-cpu-initialization", "deterministic-mode", "moe-router-dtype"),
)


FRAMEWORK = Framework(
    parse=parsed,
    render=written,
    table=(*MODEL, *EXPERTS, *LAYOUT),
    silent=_SILENT,
    assumed=_ASSUMED,
    stack="megatron-core",
    needs="num-layers",
    search=SEARCH,
)
