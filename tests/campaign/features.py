"""Features of a training job, any two of which people may ask for together.

Each is values of keys on one small job. Two that name the same key are a choice between them.
"""

import copy
import random
from collections.abc import Mapping
from typing import Any

Document = dict[str, Any]

BASE: Document = {
    "model": "mixtral-8x7b",
    "topology": "dgx-h100-ndr",
    "stack": "megatron-core",
    "gpus": 16,
    "plan": {"microbatch": 1, "global_batch": 64, "precision": "bf16"},
}
SMALL = {"model.layers": 8, "model.seq": 2048}

_OF_FILES = ("model", "network")  # whose keys a scenario changes

Settings = Mapping[str, Any]

FEATURES: Mapping[str, Settings] = {
    "tensor parallel": {"plan.tp": 2, "plan.sequence_parallel": True},
    "context parallel, ring": {"plan.cp": 2, "plan.context": "ring"},
    "context parallel, all-gather": {"plan.cp": 2, "plan.context": "all-gather"},
    "Ulysses": {"plan.axes.ulysses": 2},
    "pipeline, 1F1B": {"plan.pp": 2},
    "pipeline, GPipe": {"plan.pp": 2, "plan.schedule": "gpipe"},
    "pipeline, interleaved": {"plan.pp": 2, "plan.schedule": "interleaved", "plan.interleave": 2},
    "pipeline, zero bubble": {"plan.pp": 2, "plan.schedule": "zb-h1"},
    "pipeline, DualPipe": {"plan.pp": 2, "plan.schedule": "dualpipe"},
    "pipeline, PipeDream-2BW": {"plan.pp": 2, "plan.schedule": "pipedream-2bw"},
    "pipeline, zero bubble V": {"plan.pp": 2, "plan.schedule": "zb-v"},
    "unequal stages": {"plan.pp": 2, "plan.layers": [3, 5]},
    "expert parallel": {"plan.ep": 4},
    "expert tensor parallel": {
        "plan.tp": 2, "plan.sequence_parallel": True, "plan.etp": 2, "plan.ep": 2,
    },
    "overlapped experts": {"plan.ep": 4, "plan.overlap_experts": True},
    "capacity of experts": {"model.blocks.experts.capacity": 1.25},
    "unbalanced routing": {
        "model.blocks.experts.routing": {"law": "zipf", "exponent": 0.5},
    },
    "ZeRO-1": {"plan.zero": 1},
    "ZeRO-2": {"plan.zero": 2},
    "ZeRO-3": {"plan.zero": 3},
    "hybrid sharding": {"plan.zero": 3, "plan.dp_replicate": 2},
    "ZeRO++, weights near": {"plan.zero": 3, "plan.reshard": "near", "plan.axes.dp_hpz": 2},
    "offloaded optimizer": {"plan.zero": 2, "plan.offload.optimizer": 1.0},
    "offloaded activations": {"plan.recompute": "full", "plan.offload.activations": 1.0},
    "offloaded parameters": {"plan.zero": 3, "plan.offload.parameters": 1.0},
    "full recomputation": {"plan.recompute": "full"},
    "selective recomputation": {"plan.recompute": "selective"},
    "recomputation of some layers": {
        "plan.recompute": "full", "plan.recompute_method": "block", "plan.recompute_layers": 1,
    },
    "fp8": {"plan.precision": "fp8"},
    "fp16": {"plan.precision": "fp16"},
    "LoRA": {"plan.lora.rank": 16},
    "Muon": {"plan.optimizer": "muon"},
    "16-bit moments": {"plan.moments": "bf16"},
    "fp32 gradients": {"plan.grad_reduce_in_fp32": True},
    "compressed gradients": {"plan.gradients": {"kind": "powersgd", "rank": 4}},
    "compressed activations": {"plan.pp": 2, "plan.activations": {"kind": "int8"}},
    "user buffers": {
        "plan.tp": 2, "plan.sequence_parallel": True, "plan.tp_comm_overlap": True,
    },
    "CUDA graphs": {"plan.cuda_graph": ["attn"]},
    "sliding window": {"model.window": 512},
    "latent attention": {
        "model.latent": {"query": 1536, "kv": 512, "rotary": 64}, "model.kv_heads": 32,
    },
    "multi-token prediction": {"model.mtp": 1},
    "packed documents": {"model.documents": 256},
    "encoder and decoder": {"model": "t5-11b", "model.pattern": "4 dense, 4 decoder"},
    "tied embeddings": {"model.tied_embeddings": True},
    "a slow rank": {"straggler": [{"rank": 5, "factor": 1.2}]},
    "a slow NIC": {"straggler": [{"link": "node1.nic0", "factor": 2.0}]},
    "eager PyTorch": {"stack": "pytorch-eager"},
    "torchtitan": {"stack": "torchtitan-eager"},
    "DeepSpeed": {"stack": "deepspeed"},
    "fat tree": {"network.shape": "fat-tree"},
    "rails": {"network.shape": "rail-optimised"},
    "stages next to each other": {"plan.order": "tp-cp-pp-dp"},
}  # fmt: skip


def together(*names: str) -> Settings | None:
    """The keys of some features; None where two of them want another value of one key."""
    found: dict[str, Any] = dict(SMALL)
    for name in names:
        for key, value in FEATURES[name].items():
            if found.setdefault(key, value) != value:
                return None
    return found


def job(settings: Settings) -> Document:
    """The scenario with these keys, as its file has it."""
    document = copy.deepcopy(BASE)
    for key, value in settings.items():
        if key.split(".")[0] in _OF_FILES and "." in key:
            document.setdefault("change", {})[key] = value
            continue
        *path, last = key.split(".")
        table = document
        for name in path:
            table = table.setdefault(name, {})
        table[last] = value
    return document


def drawn(chance: random.Random) -> Document:
    """A job with two to four features."""
    while True:
        settings = together(*chance.sample(sorted(FEATURES), chance.choice((2, 3, 4))))
        if settings is not None:
            return job(settings)
