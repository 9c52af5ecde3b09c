"""Read and write torchtitan's job configs (torchtitan/config/job_config.py, v0.2)."""

import tomllib
from collections.abc import Mapping
from typing import Any

from sim.config.errors import InputError
from sim.interface.frameworks.arguments import (
    Choice,
    Entry,
    Given,
    Keys,
    Together,
    Value,
    chosen,
    integer,
    no_sync,
    offload,
    value_of,
)
from sim.interface.frameworks.documents import Words, flattened, nested
from sim.interface.frameworks.framework import Framework
from sim.model import reading
from sim.model.checkpointing import MODES

# Models of torchtitan/models/*/__init__.py, by name and flavour.
_MODELS = {
    ("llama3", "8B"): "llama3-8b",
    ("llama3", "70B"): "llama3-70b",
    ("llama3", "405B"): "llama3-405b",
    ("deepseek_v3", "671B"): "deepseek-v3",
    ("qwen3", "30B-A3B"): "qwen3-30b-a3b",
    ("qwen3", "235B-A22B"): "qwen3-235b-a22b",
}
# Schedules of torch.distributed.pipelining.schedules.
_SCHEDULES = {
    "1F1B": "1f1b",
    "GPipe": "gpipe",
    "Interleaved1F1B": "interleaved",
    "InterleavedZeroBubble": "interleaved-zero-bubble",
    "ZBVZeroBubble": "zb-v",
    "DualPipeV": "dualpipev",
    "LoopedBFS": "looped-bfs",
}
_RESHARDING = {"default": None, "always": True, "never": False}


def _model(given: Given) -> dict[str, Any]:
    if "model.name" not in given:
        raise InputError("argument model.name", "is missing", "give the whole job's config")
    name, flavour = (
        value_of(given, key, str) if key in given else "" for key in ("model.name", "model.flavor")
    )
    if (name, flavour) not in _MODELS:
        known = [f"{model} {size}" for model, size in _MODELS]
        fault = f"{name} {flavour} is not known"
        raise InputError.unknown("argument model.flavor", fault, f"{name} {flavour}", known)
    return {"model.like": _MODELS[name, flavour]}


# The keys in which the models of `_MODELS` differ.
_SHAPE = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "gated_mlp", "tied_embeddings")


def _alike(keys: Keys, name: str) -> bool:
    """Whether a model has the shape of the model `name` of `models/`."""
    known = reading.load(name)
    given = dict(keys)  # a copy: `keys` would count these keys as written
    return all(given.get(f"model.{key}") == getattr(known, key, None) for key in _SHAPE)


def _write_model(keys: Keys) -> Words:
    """Write the name and flavour of a known model; write nothing for other models."""
    like = keys.get("model.like")
    found = next((key for key, name in _MODELS.items() if name == like or _alike(keys, name)), None)
    return {"model.name": (found[0],), "model.flavor": (found[1],)} if found else {}


def _batch(given: Given) -> dict[str, Any]:
    """Return the batch. `local_batch_size` is the rows of a rank in a micro-step, which a pipeline
    cuts into microbatches. If `global_batch_size` is -1 or missing, a step is a single micro-step
    (torchtitan/train.py)."""
    local = integer(given, "training.local_batch_size", integer(given, "training.batch_size", 8))
    keys: dict[str, Any] = {"local": local, "plan.microbatch": local}
    if integer(given, "parallelism.pipeline_parallel_degree", 1) > 1:
        keys["plan.microbatch"] = integer(given, "parallelism.pipeline_parallel_microbatch_size", 1)
    if (whole := integer(given, "training.global_batch_size", -1)) > 0:
        keys["plan.global_batch"] = whole
    return keys


def _write_batch(keys: Keys) -> Words:
    each, local = keys["plan.microbatch"], keys["plan.microbatch"]
    words: Words = {}
    if keys["plan.pp"] > 1:
        local = keys["plan.global_batch"] // keys["ranks"] // keys.get("plan.drains", 1)
        words["parallelism.pipeline_parallel_microbatch_size"] = (str(each),)
    return {
        "training.local_batch_size": (str(local),),
        "training.global_batch_size": (str(keys["plan.global_batch"]),),
        **words,
    }


def _sharding(given: Given) -> dict[str, Any]:
    """Return the sharding: FSDP2 over `data_parallel_shard_degree` ranks (-1: all ranks that other
    axes leave)."""
    shard = integer(given, "parallelism.data_parallel_shard_degree", -1)
    replicas = integer(given, "parallelism.data_parallel_replicate_degree", 1)
    keys: dict[str, Any] = {"plan.zero": 3, "plan.dp_replicate": replicas}
    if shard == 1:
        return {"plan.zero": 0, "plan.dp": replicas}
    return keys | ({"plan.dp": shard} if shard > 0 else {})


def _write_sharding(keys: Keys) -> Words:
    zero, replicas = keys["plan.zero"], keys["plan.dp_replicate"]
    if zero not in (0, 3):
        raise InputError("plan.zero", f"torchtitan has no ZeRO-{zero}", "set zero = 0 or zero = 3")
    sizes = (1, keys["plan.dp"]) if zero == 0 else (keys["plan.dp"], replicas)
    return {
        "parallelism.data_parallel_shard_degree": (str(sizes[0]),),
        "parallelism.data_parallel_replicate_degree": (str(sizes[1]),),
    }


def _chunks(given: Given) -> dict[str, Any]:
    """Return two chunks of a stage for schedules with several chunks (distributed/
    pipeline_parallel.py, pipeline_llm: `stages_per_rank = 1 if is_single_stage_schedule else 2`).
    """
    name = "parallelism.pipeline_parallel_schedule"
    schedule = chosen(given, name, _SCHEDULES, "1F1B")
    piped = integer(given, "parallelism.pipeline_parallel_degree", 1) > 1
    looped = piped and schedule in ("interleaved", "interleaved-zero-bubble", "looped-bfs")
    return {"plan.interleave": 2} if looped else {}


def _write_chunks(keys: Keys) -> Words:
    if keys["plan.interleave"] not in (1, 2):
        fault = f"interleave is {keys['plan.interleave']}, but torchtitan puts 2 chunks on a stage"
        raise InputError("plan.interleave", fault, "set interleave = 2")
    return {}


def _tensor(given: Given) -> dict[str, Any]:
    """Return the keys of tensor parallelism, which in torchtitan always divides the sequence, too
    (parallelize_llama.py)."""
    tp = integer(given, "parallelism.tensor_parallel_degree", 1)
    return {"plan.tp": tp, "plan.sequence_parallel": tp > 1}


def _write_tensor(keys: Keys) -> Words:
    if keys["plan.tp"] > 1 and not keys["plan.sequence_parallel"]:
        remedy = "set sequence_parallel = true"
        raise InputError("plan", "torchtitan's tensor parallelism divides sequences", remedy)
    return {"parallelism.tensor_parallel_degree": (str(keys["plan.tp"]),)}


def _recompute(given: Given) -> dict[str, Any]:
    mode = "activation_checkpoint.mode"
    modes = {name: name for name in ("none", "selective", "full")}
    word = chosen(given, mode, modes, "selective")
    option = "activation_checkpoint.selective_ac_option"
    every = value_of(given, option, str) if option in given else "2"
    if word == "selective" and every.isdigit():
        if every == "1":
            return {"plan.recompute": "full"}
        method = {"plan.recompute_method": "every", "plan.recompute_layers": int(every)}
        return {"plan.recompute": "full", **method}
    return {"plan.recompute": word}


def _write_recompute(keys: Keys) -> Words:
    rule, method = keys["plan.recompute"], keys.get("plan.recompute_method")
    mode, option = "activation_checkpoint.mode", "activation_checkpoint.selective_ac_option"
    if rule == "full" and method == "every":
        return {mode: ("selective",), option: (str(keys["plan.recompute_layers"]),)}
    if not isinstance(rule, str) or method is not None:
        raise InputError("plan.recompute", f"torchtitan has no {rule!r}", "name one of its modes")
    return {mode: (rule,), **({option: ("op",)} if rule == "selective" else {})}


def _precision(given: Given) -> dict[str, Any]:
    names = given.get("model.converters", ())
    low = any("float8" in name for name in names)
    return {"plan.precision": "fp8" if low else "bf16"}


def _write_precision(keys: Keys) -> Words:
    precision = keys["plan.precision"]
    if precision not in ("bf16", "fp8"):
        raise InputError("plan.precision", f"torchtitan has no {precision}", "take bf16 or fp8")
    return {"model.converters": ("quantize.linear.float8",)} if precision == "fp8" else {}


_TABLE: tuple[Entry, ...] = (
    Together(("model.name", "model.flavor"), _model, _write_model),
    Value("training.seq_len", "model.seq", default=2048),
    Together(
        (
            *("training.local_batch_size", "training.batch_size", "training.global_batch_size"),
            "parallelism.pipeline_parallel_microbatch_size",
        ),
        _batch,
        _write_batch,
    ),
    Together(
        ("parallelism.data_parallel_shard_degree", "parallelism.data_parallel_replicate_degree"),
        _sharding,
        _write_sharding,
    ),
    Choice("parallelism.fsdp_reshard_after_forward", "plan.reshard", _RESHARDING, "default"),
    no_sync("torchtitan"),
    Together(("parallelism.tensor_parallel_degree",), _tensor, _write_tensor),
    Value("parallelism.pipeline_parallel_degree", "plan.pp", default=1),
    Choice(
        "parallelism.pipeline_parallel_schedule", "plan.schedule", values=_SCHEDULES, default="1F1B"
    ),
    Together((), _chunks, _write_chunks),
    Value("parallelism.context_parallel_degree", "plan.cp", default=1),
    Value("parallelism.expert_parallel_degree", "plan.ep", default=1),
    Together(
        ("activation_checkpoint.mode", "activation_checkpoint.selective_ac_option"),
        _recompute,
        _write_recompute,
    ),
    offload("training.enable_cpu_offload", "torchtitan offloads states as a whole or not at all"),
    Together(("model.converters",), _precision, _write_precision),
    Together(
        (),
        lambda given: {},
        lambda keys: {"compile.enable": ("true",), "compile.components": ("model", "loss")},
    ),
)


def _completed(keys: dict[str, Any], gpus: int) -> dict[str, Any]:
    """Add the batch if it is missing: a micro-step on every data-parallel rank. Raises
    `InputError` if the number of GPUs is unknown."""
    local = keys.pop("local")
    others = keys["plan.tp"] * keys["plan.pp"] * keys["plan.cp"]
    if "plan.global_batch" not in keys:
        if not gpus:
            fault = "training.global_batch_size and the number of GPUs are missing"
            raise InputError("the job", fault, "give --gpus")
        keys["plan.global_batch"] = local * max(gpus // others, 1)
    return keys


def _parse(text: str) -> Words:
    try:
        return flattened(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise InputError("the config", f"is not valid TOML: {error}", "correct that line") from None


def _render(words: Mapping[str, tuple[str, ...]]) -> str:
    import tomli_w

    document = nested(words)
    if "converters" in document.get("model", {}):
        document["model"]["converters"] = list(words["model.converters"])
    return tomli_w.dumps(document).rstrip()


FRAMEWORK = Framework(
    ending=".toml",
    starts="TORCHRUN -m torchtitan.train --job.config_file FILE --model.hf_assets_path PATH "
    "--training.dataset DATA --training.steps N --optimizer.lr RATE",
    parse=_parse,
    render=_render,
    table=_TABLE,
    stack="torchtitan-compile",
    needs="model.name",
    search=(
        f"schedule={','.join(_SCHEDULES.values())}",
        *("zero=0,3", "sequence_parallel=yes", "layers=even", "order=tp-cp-dp-pp", "etp=1"),
        "interleave=1,2",
        f"recompute={','.join(MODES)}",
    ),
    completed=_completed,
    assumed=(
        *("training.compile", "compile.enable", "compile.components", "optimizer.name"),
        *("optimizer.implementation", "training.dtype", "training.mixed_precision_param"),
        *("training.mixed_precision_reduce", "float8.enable_fsdp_float8_all_gather"),
        *("float8.precompute_float8_dynamic_scale_for_fsdp", "float8.filter_fqns"),
    ),
    silent={
        """job profiling metrics checkpoint comm lr_scheduler validation experimental debug
            fault_tolerance memory_estimation""": "*",
        "training": "steps dataset* seed max_norm gc_* deterministic",
        "optimizer": "lr eps beta* weight_decay early_*",
        "model": "hf_* tokenizer* print_*",
        "activation_checkpoint": "early_stop per_op*",
    },
)
