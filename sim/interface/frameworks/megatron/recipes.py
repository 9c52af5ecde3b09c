"""Recipes of NVIDIA NeMo 2 and Megatron-Bridge: YAML of a whole job, or changes on a command line.

Megatron-Bridge writes YAML by `ConfigContainer.to_yaml` (training/utils/omegaconf_utils.py); its
scripts/training/run_recipe.py takes overrides such as `model.tensor_model_parallel_size=4`. NeMo
writes YAML by `nemo llm pretrain --factory NAME ... --to-yaml`, and takes the same overrides. The
fields of both correspond to Megatron-LM's arguments (`fields.py`).
"""

import re
from typing import Any

from sim.config.errors import InputError
from sim.interface.frameworks import overrides
from sim.interface.frameworks.arguments import (
    Entry,
    Flag,
    Given,
    Keys,
    Together,
    Value,
    chosen,
    integer,
)
from sim.interface.frameworks.documents import Words
from sim.interface.frameworks.framework import Base, Framework
from sim.interface.frameworks.megatron import table
from sim.interface.frameworks.megatron.experts import EXPERTS
from sim.interface.frameworks.megatron.fields import DERIVED, Sections, arguments, fields
from sim.interface.frameworks.megatron.layout import LAYOUT, SEARCH, completed
from sim.interface.frameworks.megatron.model import MODEL
from sim.interface.frameworks.megatron.table import RECIPES

# Models by the first part of a recipe's name (llama3_8b_pretrain_config), or of the name of a
# config class (Llama3Config8B).
_MODELS = {
    "llama2_7b": "llama2-7b",
    "llama2_70b": "llama2-70b",
    "llama3_8b": "llama3-8b",
    "llama3_70b": "llama3-70b",
    "llama31_8b": "llama3-8b",
    "llama31_70b": "llama3-70b",
    "llama31_405b": "llama3-405b",
    "llama32_1b": "llama3.2-1b",
    "llama32_3b": "llama3.2-3b",
    "mixtral_8x7b": "mixtral-8x7b",
    "mixtral_8x22b": "mixtral-8x22b",
    "deepseek_v2_lite": "deepseek-v2-lite",
    "deepseek_v2": "deepseek-v2",
    "deepseek_v3": "deepseek-v3",
    "kimi_k2": "kimi-k2",
    "moonlight_16b": "moonlight-16b-a3b",
    "qwen3_30b_a3b": "qwen3-30b-a3b",
    "qwen3_32b": "qwen3-32b",
    "qwen3_235b_a22b": "qwen3-235b-a22b",
    "gpt3_175b": "gpt3-175b",
    "gpt_175b": "gpt3-175b",
    "gpt_oss_20b": "gpt-oss-20b",
    "gpt_oss_120b": "gpt-oss-120b",
    "nemotron4_15b": "nemotron4-15b",
    "nemotron4_340b": "nemotron4-340b",
}
_CHECKPOINTS = ("model.hf_model_id", "model.config.hf_model_id", "model.hf_path")


def _lora(given: Given) -> dict[str, Any]:
    """Return the keys of LoRA (peft/lora.py). Raises `InputError` for other classes of `peft`."""
    if given["peft"] not in (("LoRA",), ("lora",)):
        raise InputError("argument peft", f"{given['peft'][0]!r} is not known", "known: LoRA")
    keys: dict[str, Any] = {"plan.lora.rank": integer(given, "peft.dim", 32)}
    if modules := given.get("peft.target_modules"):
        keys["plan.lora.modules"] = list(modules)
    return keys


def _moments(given: Given) -> dict[str, Any]:
    """Return the format of the optimizer's moments; fp16 counts as bf16, which is as wide."""
    widths = {"float32": "fp32", "bfloat16": "bf16", "float16": "bf16", "uint8": "fp8"}
    return {"plan.moments": chosen(given, "exp-avg-dtype", widths, "float32")}


def _graphs(given: Given) -> dict[str, Any]:
    scopes = [scope for scope in given.get("cuda-graph-scope", ()) if scope != "full"]
    return {"plan.cuda_graph": scopes} if "cuda-graph-impl" in given and scopes else {}


_TABLE: tuple[Entry, ...] = (
    *(*MODEL, *EXPERTS, *LAYOUT),
    Flag("grad-reduce-in-fp32", "plan.grad_reduce_in_fp32", off=None),
    Together(("exp-avg-dtype",), _moments),
    Value("activation-func-clamp-value", "model.glu_limit", kind=float, default=0.0),
    Together(("cuda-graph-impl", "cuda-graph-scope"), _graphs, all_needed=True),
    Together(
        ("peft", "peft.dim", "peft.target_modules"),
        lambda given: _lora(given) if "peft" in given else {},
    ),
)
_KNOWN = frozenset(
    {argument for entry in _TABLE for argument in entry.arguments}
    | {*table.FRAMEWORK.assumed, *DERIVED, "nnodes", "nproc-per-node", *overrides.RECIPE}
)
_SWITCHES = frozenset(
    entry.argument for entry in _TABLE if isinstance(entry, Flag) and entry.switches
)
# Written for arguments that a plan does not set, because the recipe may have other values.
_RESTING: Words = {
    **{f"{axis}-model-parallel-size": ("1",) for axis in ("tensor", "pipeline", "expert")},
    "context-parallel-size": ("1",),
    "num-virtual-stages-per-pipeline-rank": ("null",),
    "sequence-parallel": ("false",),
    "recompute-granularity": ("null",),
    "use-distributed-optimizer": ("false",),
    "overlap-grad-reduce": ("false",),
    "overlap-param-gather": ("false",),
    "tp-comm-overlap": ("false",),
    "position-embedding-type": ("learned_absolute",),
    "normalization": ("LayerNorm",),
    "disable-bias-linear": ("true",),
    "untie-embeddings-and-output-weights": ("true",),
}
_DDP = ("use-distributed-optimizer", "overlap-grad-reduce", "overlap-param-gather",
        "use-megatron-fsdp", "data-parallel-sharding-strategy", "grad-reduce-in-fp32")  # fmt: skip
_AXES = ("sequence-parallel", "num-virtual-stages-per-pipeline-rank",
         "microbatch-group-size-per-virtual-pipeline-stage",
         "expert-tensor-parallel-size", "context-parallel-size",
         *(f"{axis}-model-parallel-size" for axis in ("tensor", "pipeline", "expert")))  # fmt: skip

_BRIDGE = Sections(
    model="model",
    precision="mixed_precision",
    names_all=True,
    reads=("optimizer", "dist", "model", "train", "dataset", "ddp", "comm_overlap",
           "mixed_precision"),
    writes={
        "micro-batch-size": "train",
        "global-batch-size": "train",
        "seq-length": "dataset",
        "optimizer": "optimizer",
        "tp-comm-overlap": "comm_overlap",
        "ckpt-format": "checkpoint",
        **dict.fromkeys(_DDP, "ddp"),
    },
)  # fmt: skip
_NEMO = Sections(
    model="model.config",
    precision="trainer.plugins.precision",
    names_all=False,
    reads=(r"optim\.config", r"model\.config", "trainer", r"trainer\.strategy",
           r"trainer\.strategy\.ddp", "data", r"trainer\.callbacks\.\d+", r"trainer\.plugins"),
    writes={
        "micro-batch-size": "data",
        "global-batch-size": "data",
        "seq-length": "data",
        "optimizer": "optim.config",
        **dict.fromkeys(_AXES, "trainer.strategy"),
        **dict.fromkeys(_DDP, "trainer.strategy.ddp"),
    },
)  # fmt: skip


def _base(given: Given) -> Base:
    """Return the model that a recipe, a config class or a checkpoint is named after."""
    for key in (*overrides.RECIPE, "model.config", *_CHECKPOINTS):
        if called := " ".join(given.get(key, ())):
            note = f"values of recipe {called}, except its model, are not read; give its YAML"
            notes = (note,) if key in overrides.RECIPE else ()
            return Base(like=_of_ours(called), called=called, notes=notes)
    return Base()


def _of_ours(called: str) -> str:
    """Return the name in models/ of the model in a recipe's name, or "".

    >>> _of_ours("Llama31Config405B"), _of_ours("DeepSeekV3Config"), _of_ours("t5_220m")
    ('llama3-405b', 'deepseek-v3', '')
    """
    plain = re.sub(r"DeepSeek", "deepseek_", re.sub("Config|Model", "_", called)).lower()
    found = [name for name in _MODELS if plain.startswith(name)]
    return _MODELS[max(found, key=len)] if found else ""


def _completed(keys: dict[str, Any], gpus: int) -> dict[str, Any]:
    if "plan.global_batch" not in keys:
        raise InputError("the job", "global_batch_size is missing", "add it to the text")
    return completed(keys, gpus)


def _framework(
    sections: Sections, stack: str, script: str, starts: str, further: tuple[Entry, ...] = ()
) -> Framework:
    def parse(text: str) -> Words:
        return arguments(overrides.stated(text), sections, _KNOWN, _SWITCHES)

    def render(words: Keys) -> str:
        return overrides.written(fields(dict(words), sections, _RESTING))

    return Framework(
        ending=".sh",
        script=script,
        starts=starts,
        environment=table.connections,
        parse=parse,
        render=render,
        table=(*_TABLE, *further),
        silent=RECIPES,
        assumed=(*table.FRAMEWORK.assumed, "nnodes", "nproc-per-node", *overrides.RECIPE),
        stack=stack,
        needs="num-layers",
        search=SEARCH,
        base=_base,
        completed=_completed,
    )


BRIDGE = _framework(
    _BRIDGE,
    "megatron-bridge",
    "scripts/training/run_recipe.py",
    "--recipe RECIPE --dataset DATA train.train_iters=N optimizer.lr=RATE",
    (table.FORMAT,),
)
NEMO = _framework(
    _NEMO,
    "nemo",
    "--no-python nemo llm pretrain --yes",
    "--factory RECIPE trainer.num_nodes=NODES trainer.devices=EACH trainer.max_steps=N "
    "optim.config.lr=RATE",
)
