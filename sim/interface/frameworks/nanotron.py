"""Read and write nanotron's YAML (src/nanotron/config/config.py, parallelism_config.py,
models_config.py). It may describe a Llama, or a Qwen2 with the layers of a Llama."""

from typing import Any

from sim.config.errors import InputError
from sim.interface.frameworks import documents
from sim.interface.frameworks.arguments import (
    BOOLEANS,
    Choice,
    Entry,
    Given,
    Keys,
    Together,
    Value,
    chosen,
    integer,
)
from sim.interface.frameworks.documents import Words, flattened, nested
from sim.interface.frameworks.framework import Framework

_MODEL, _PARALLEL, _TOKENS = "model.model_config", "parallelism", "tokens"
_PRECISIONS = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_SIZES = {
    "num_hidden_layers": "layers",
    "hidden_size": "hidden",
    "num_attention_heads": "heads",
    "num_key_value_heads": "kv_heads",
    "intermediate_size": "ffn",
}
# The keys that all models of nanotron share (models/llama.py, models/qwen.py).
_SHAPE = {
    "family": "llama",
    "gated_mlp": True,
    "positions": "rotary",
    "normalisation": "rmsnorm",
    "bias": False,
    "dropout": False,
    "attention": "flash",
}
_KINDS = (f"{_MODEL}.is_llama_config", f"{_MODEL}.is_qwen2_config")


def _shape(given: Given) -> dict[str, Any]:
    if not any(given.get(kind) == ("true",) for kind in _KINDS):
        fault = "says neither is_llama_config nor is_qwen2_config"
        raise InputError(_MODEL, fault, "write [model] by hand: no other model is known")
    return {f"model.{key}": value for key, value in _SHAPE.items()}


def _write_shape(keys: Keys) -> Words:
    """Write that the model is a Llama. Raises `InputError` for other models."""
    foreign = [key for key, value in _SHAPE.items() if keys[f"model.{key}"] != value]
    foreign = [key for key in foreign if key not in ("family", "attention")]
    kinds = set(keys["model.kinds"]) - {"dense"}
    foreign += [f"layers of {', '.join(sorted(kinds))}"] if kinds else []
    for key in ("latent", "window", "output_norms", "embedding_norm", "sinks"):
        foreign += [key] if keys[f"model.{key}"] else []
    if foreign or keys["model.qk_norm"] != "none":
        raise InputError("model", f"nanotron's Llama has no such {(*foreign, 'qk_norm')[0]}",
                         "write [model] by hand")  # fmt: skip
    return {_KINDS[0]: ("true",), f"{_MODEL}.max_position_embeddings": (str(keys["model.seq"]),)}


def _vocab(given: Given) -> dict[str, Any]:
    """Return the vocabulary, padded to a multiple of tp (trainer.py,
    `_vocab_size_with_padding`)."""
    size = integer(given, f"{_MODEL}.vocab_size", 32000)
    multiple = integer(given, "model.make_vocab_size_divisible_by", 1) * integer(
        given, f"{_PARALLEL}.tp", 1
    )
    return {"model.vocab": -(-size // multiple) * multiple}


def _biases(given: Given) -> dict[str, Any]:
    biased = given.get(f"{_MODEL}.attention_bias") == ("true",)
    return {"model.biases": ["qkv"]} if biased else {}


def _write_biases(keys: Keys) -> Words:
    biases = [*keys["model.biases"]]
    if biases not in ([], ["qkv"]):
        raise InputError("model.biases", f"nanotron has no {biases}", "write [model] by hand")
    return {f"{_MODEL}.attention_bias": ("true",)} if biases else {}


def _batch(given: Given) -> dict[str, Any]:
    """Return the batch: microbatch x micro-steps x replicas (config.py, global_batch_size).

    >>> _batch({"tokens.micro_batch_size": ("4",), "parallelism.dp": ("8",)})["plan.global_batch"]
    32
    """
    each = integer(given, f"{_TOKENS}.micro_batch_size", 1)
    often = integer(given, f"{_TOKENS}.batch_accumulation_per_replica", 1)
    replicas = integer(given, f"{_PARALLEL}.dp", 1)
    whole = each * often * replicas
    return {"plan.microbatch": each, "plan.dp": replicas, "plan.global_batch": whole}


def _write_batch(keys: Keys) -> Words:
    if keys["plan.dp_replicate"] > 1:
        raise InputError("plan.dp_replicate", "nanotron has none", "set dp_replicate = 1")
    often = keys["plan.global_batch"] // (keys["plan.microbatch"] * keys["ranks"])
    return {
        f"{_TOKENS}.micro_batch_size": (str(keys["plan.microbatch"]),),
        f"{_TOKENS}.batch_accumulation_per_replica": (str(often),),
        f"{_PARALLEL}.dp": (str(keys["ranks"]),),
    }


def _tensor(given: Given) -> dict[str, Any]:
    """Return the keys of tensor parallelism. `REDUCE_SCATTER` also divides the sequence. Only
    asynchronous collectives run beside matrix products."""
    tp, modes = integer(given, f"{_PARALLEL}.tp", 1), {"all_reduce": False, "reduce_scatter": True}
    name = f"{_PARALLEL}.tp_mode"
    words = {name: tuple(word.lower() for word in given.get(name, ("all_reduce",)))}
    keys: dict[str, Any] = {"plan.tp": tp}
    keys["plan.sequence_parallel"] = chosen(words, name, modes, "all_reduce") and tp > 1
    beside = chosen(given, f"{_PARALLEL}.tp_linear_async_communication", BOOLEANS, "false")
    return keys | ({} if beside or tp == 1 else {"stack.fusion.overlap_tensor": False})


def _write_tensor(keys: Keys) -> Words:
    divided = keys["plan.sequence_parallel"]
    return {
        f"{_PARALLEL}.tp": (str(keys["plan.tp"]),),
        f"{_PARALLEL}.tp_mode": ("REDUCE_SCATTER" if divided else "ALL_REDUCE",),
        f"{_PARALLEL}.tp_linear_async_communication": ("true",),
    }


def _recompute(given: Given) -> dict[str, Any]:
    whole = chosen(given, f"{_PARALLEL}.recompute_layer", BOOLEANS, "false")
    return {"plan.recompute": "full" if whole else "none"}


def _write_recompute(keys: Keys) -> Words:
    rule = keys["plan.recompute"]
    if rule not in ("none", "full") or keys["plan.recompute_method"] is not None:
        remedy = "set recompute = none or recompute = full"
        raise InputError("plan.recompute", f"nanotron has no {rule!r}", remedy)
    return {f"{_PARALLEL}.recompute_layer": (str(rule == "full").lower(),)}


def _gradients(given: Given) -> dict[str, Any]:
    whole = chosen(given, "optimizer.accumulate_grad_in_fp32", BOOLEANS, "true")
    return {} if whole else {"plan.grad_reduce_in_fp32": False}


def _write_gradients(keys: Keys) -> Words:
    whole = keys["plan.grad_reduce_in_fp32"] is not False
    return {"optimizer.accumulate_grad_in_fp32": (str(whole).lower(),)}


_TABLE: tuple[Entry, ...] = (
    Together(_KINDS, _shape, _write_shape),
    *(Value(f"{_MODEL}.{name}", f"model.{key}") for name, key in _SIZES.items()),
    Together(
        (f"{_MODEL}.vocab_size", "model.make_vocab_size_divisible_by"),
        _vocab,
        lambda keys: {f"{_MODEL}.vocab_size": (str(keys["model.vocab"]),)},
    ),
    Choice(f"{_MODEL}.tie_word_embeddings", "model.tied_embeddings", BOOLEANS, "false", True),
    Together((f"{_MODEL}.attention_bias",), _biases, _write_biases),
    Value(f"{_TOKENS}.sequence_length", "model.seq"),
    Value(f"{_MODEL}.rope_theta", "model.numerics.rope_theta", kind=float),
    Value(f"{_MODEL}.rms_norm_eps", "model.numerics.norm_epsilon", kind=float),
    Together(
        (
            *(f"{_TOKENS}.micro_batch_size", f"{_TOKENS}.batch_accumulation_per_replica"),
            f"{_PARALLEL}.dp",
        ),
        _batch,
        _write_batch,
    ),
    Together(
        (
            *(f"{_PARALLEL}.tp", f"{_PARALLEL}.tp_mode"),
            f"{_PARALLEL}.tp_linear_async_communication",
        ),
        _tensor,
        _write_tensor,
    ),
    Value(f"{_PARALLEL}.pp", "plan.pp", default=1, needed=True),
    Choice(
        f"{_PARALLEL}.pp_engine",
        "plan.schedule",
        values={"1f1b": "1f1b", "afab": "gpipe"},
        default="afab",
    ),
    Value(f"{_PARALLEL}.context_parallel_size", "plan.cp", default=1),
    Value(f"{_PARALLEL}.expert_parallel_size", "plan.ep", default=1),
    Together((f"{_PARALLEL}.recompute_layer",), _recompute, _write_recompute),
    Choice("optimizer.zero_stage", "plan.zero", {"0": 0, "1": 1}, "0", needed=True),
    Choice(
        "optimizer.optimizer_factory.name",
        "plan.optimizer",
        values={"adamW": "adam", "sgd": "sgd"},
        default="adamW",
    ),
    Choice(
        "optimizer.optimizer_factory.torch_adam_is_fused",
        "stack.fused_optimizer",
        {"true": None, "false": False},
        "true",
    ),
    Together(("optimizer.accumulate_grad_in_fp32",), _gradients, _write_gradients),
    Choice("model.dtype", "plan.precision", _PRECISIONS, "bfloat16", needed=True),
)


def _completed(keys: dict[str, Any], gpus: int) -> dict[str, Any]:
    """Return the keys with the number of GPUs, which follows from the file."""
    ranks = keys["plan.dp"] * keys["plan.tp"] * keys["plan.pp"] * keys["plan.cp"]
    if gpus not in (0, ranks):
        fault = f"{gpus} GPUs are not the dp x tp x pp x cp = {ranks} of the file"
        raise InputError("--gpus", fault, "leave it out")
    return keys | {"gpus": ranks}


def _parse(text: str) -> Words:
    words = flattened(documents.parsed(text))
    if any(name.startswith(f"{_MODEL}.moe_config.") for name in words):
        raise InputError(f"{_MODEL}.moe_config", "is not known", "write [model] by hand")
    return {name: word for name, word in words.items() if word}


_BESIDE_THE_JOB = """
    checkpoints data_stages general lighteval logging profiler s3_upload tokenizer metrics_logging
"""

FRAMEWORK = Framework(
    ending=".yaml",
    starts="TORCHRUN run_train.py --config-file FILE",
    environment=lambda plan, generation: {"CUDA_DEVICE_MAX_CONNECTIONS": "1"},  # its README
    lacks="general, tokenizer, checkpoints, data_stages, model.init_method, tokens.train_steps and "
    "the rest of optimizer: weight_decay, clip_grad, optimizer_factory, learning_rate_scheduler",
    parse=_parse,
    render=lambda words: documents.written(nested(words)),
    table=_TABLE,
    stack="nanotron",
    needs=f"{_MODEL}.num_hidden_layers",
    search=(
        *("schedule=1f1b,gpipe", "zero=0,1", "recompute=none,full", "dp_replicate=1"),
        *("layers=even", "order=tp-cp-dp-pp", "interleave=1", "offload=none"),
    ),
    completed=_completed,
    assumed=(f"{_PARALLEL}.tp_recompute_allgather",),
    silent={
        "": _BESIDE_THE_JOB,
        _BESIDE_THE_JOB: "*",
        "model": "init_method.* ddp_bucket_cap_mb",
        _MODEL: """bos_token_id eos_token_id pad_token_id hidden_act initializer_range
            pretraining_tp
            rope_scaling.* rope_interleaved use_cache
            max_position_embeddings _attn_implementation z_loss_*
            interleaved_rotary""",
        "optimizer": """clip_grad learning_rate_scheduler.* weight_decay*
            optimizer_factory.adam_*""",
        "tokens": "limit_* train_steps val_check_interval",
        _PARALLEL: "moe_layer_recompute",
    },
)
