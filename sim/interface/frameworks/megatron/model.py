"""Megatron-LM's arguments for the shape of a model (megatron/training/arguments.py, core_v0.14)."""

from typing import Any

from sim.config.errors import InputError
from sim.interface.frameworks.arguments import (
    Choice,
    Entry,
    Flag,
    Given,
    Keys,
    Together,
    Value,
    chosen,
    integer,
    value_of,
)


def ffn(given: Given) -> dict[str, Any]:
    """Return the width of the MLP. The default is 4 h, or with SwiGLU two thirds of 4 h rounded
    down to a multiple of 64 (arguments.py, validate_args)."""
    if "ffn-hidden-size" in given:
        return {"model.ffn": integer(given, "ffn-hidden-size")}
    hidden = integer(given, "hidden-size")
    gated = "swiglu" in given
    return {"model.ffn": int(4 * hidden * 2 / 3 / 64) * 64 if gated else 4 * hidden}


def _head(given: Given) -> dict[str, Any]:
    return {"model.head": integer(given, "kv-channels")} if "kv-channels" in given else {}


def _write_head(keys: Keys) -> dict[str, tuple[str, ...]]:
    """Write the width of a head if heads x width is not the hidden size. Latent attention has
    arguments of its own."""
    width = keys["model.head"]
    if keys.get("model.latent") or width * keys["model.heads"] == keys["model.hidden"]:
        return {}
    return {"kv-channels": (str(width),)}


def _rows(given: Given) -> dict[str, Any]:
    rows = integer(given, "max-position-embeddings")
    return {"model.position_rows": rows} if rows != integer(given, "seq-length") else {}


def _write_rows(keys: Keys) -> dict[str, tuple[str, ...]]:
    rows = max(keys.get("model.position_rows", 0), keys["model.seq"])
    return {"max-position-embeddings": (str(rows),)}


def _family(given: Given) -> dict[str, Any]:
    """Return the family of the model, by which a stack's `[scripts]` are chosen."""
    if "num-experts" in given:
        return {"model.family": "moe"}
    return {"model.family": "llama" if "swiglu" in given else "gpt"}


def _vocab(given: Given) -> dict[str, Any]:
    """Return the vocabulary, padded to a multiple of `make-vocab-size-divisible-by` (128) times
    tp."""
    if "padded-vocab-size" in given:
        return {"model.vocab": integer(given, "padded-vocab-size")}
    if "vocab-size" not in given:
        return {}  # it comes from the tokenizer
    size = integer(given, "make-vocab-size-divisible-by", 128)
    multiple = size * integer(given, "tensor-model-parallel-size", 1)
    return {"model.vocab": -(-integer(given, "vocab-size") // multiple) * multiple}


def _groups(given: Given) -> dict[str, Any]:
    fewer = "group-query-attention" in given
    return {"model.kv_heads": integer(given, "num-query-groups", 1)} if fewer else {}


def _write_groups(keys: Keys) -> dict[str, tuple[str, ...]]:
    count = keys.get("model.kv_heads", 0)
    if count in (0, keys.get("model.heads")) or keys.get("model.latent"):
        return {}
    return {"group-query-attention": (), "num-query-groups": (str(count),)}


def _latent(given: Given) -> dict[str, Any]:
    """Return the sizes of multi-head latent attention; defaults are MLATransformerConfig's."""
    if "multi-latent-attention" not in given:
        return {}
    rotary = integer(given, "qk-pos-emb-head-dim", 64)
    return {
        "model.latent.query": integer(given, "q-lora-rank"),
        "model.latent.kv": integer(given, "kv-lora-rank", 32),
        "model.latent.rotary": rotary,
        "model.head": integer(given, "qk-head-dim", 128) + rotary,
        "model.value_head": integer(given, "v-head-dim", 128),
    }


def _write_latent(keys: Keys) -> dict[str, tuple[str, ...]]:
    latent = keys.get("model.latent")
    if not latent:
        return {}
    sizes = {
        "q-lora-rank": latent.query,
        "kv-lora-rank": latent.kv,
        "qk-head-dim": keys["model.head"] - latent.rotary,
        "qk-pos-emb-head-dim": latent.rotary,
        "v-head-dim": keys["model.value_head"],
    }
    words = {name: (str(size),) for name, size in sizes.items() if size}
    return {"multi-latent-attention": (), **words}


def _write_qk_norm(keys: Keys) -> dict[str, tuple[str, ...]]:
    """Write the norm of queries and keys of each head. Raises `InputError` for other norms than
    RMSNorm."""
    kind = keys.get("model.qk_norm", "none")
    if kind not in ("none", "rmsnorm"):
        fault = f"qk_norm = {kind!r} has no argument"
        raise InputError("model", fault, "write them by hand")
    return {"qk-layernorm": ()} if kind == "rmsnorm" else {}


def _dropout(given: Given) -> dict[str, Any]:
    rates = [
        float(value_of(given, name, float)) if name in given else 0.1
        for name in ("hidden-dropout", "attention-dropout")
    ]
    return {"model.dropout": any(rates)}


def _write_dropout(keys: Keys) -> dict[str, tuple[str, ...]]:
    if keys.get("model.dropout", True):
        return {}
    return {"hidden-dropout": ("0.0",), "attention-dropout": ("0.0",)}


def _positions(given: Given) -> dict[str, Any]:
    kinds = {"learned_absolute": "learned", "rope": "rotary", "yarn": "rotary", "none": "none"}
    name = "position-embedding-type"
    positions = chosen(given, name, kinds, "learned_absolute")
    return {"model.positions": "rotary" if "use-rotary-position-embeddings" in given else positions}


def _write_positions(keys: Keys) -> dict[str, tuple[str, ...]]:
    words = {"rotary": "rope", "none": "none"}
    positions = keys.get("model.positions", "learned")
    if positions == "alibi":
        raise InputError("model.positions", "Megatron-LM has no ALiBi", "write them by hand")
    return {"position-embedding-type": (words[positions],)} if positions in words else {}


_NUMERICS = "model.numerics"


def _stretched(given: Given) -> dict[str, Any]:
    """Return Llama 3.1's scaling factor of positions; default 8 (arguments.py,
    --rope-scaling-factor)."""
    if "use-rope-scaling" not in given:
        return {}
    name = "rope-scaling-factor"
    factor = float(value_of(given, name, float)) if name in given else 8.0
    return {f"{_NUMERICS}.rope_llama3": factor}


def _write_stretched(keys: Keys) -> dict[str, tuple[str, ...]]:
    factor = keys.get(f"{_NUMERICS}.rope_llama3")
    return {"use-rope-scaling": (), "rope-scaling-factor": (f"{factor:g}",)} if factor else {}


MODEL: tuple[Entry, ...] = (
    Value("num-layers", "model.layers"),
    Value("hidden-size", "model.hidden"),
    Value("num-attention-heads", "model.heads"),
    Together(("kv-channels",), _head, _write_head),
    Together(("group-query-attention", "num-query-groups"), _groups, _write_groups),
    Together(("ffn-hidden-size",), ffn, Value("ffn-hidden-size", "model.ffn").write),
    Value("seq-length", "model.seq"),
    Together(("max-position-embeddings",), _rows, _write_rows),
    Together(
        ("vocab-size", "padded-vocab-size", "make-vocab-size-divisible-by"),
        _vocab,
        lambda keys: {"padded-vocab-size": (str(keys["model.vocab"]),)},
    ),
    Flag("untie-embeddings-and-output-weights", "model.tied_embeddings", on=False, off=True),
    Together(
        ("position-embedding-type", "use-rotary-position-embeddings"), _positions, _write_positions
    ),
    Choice(
        "normalization",
        "model.normalisation",
        values={"LayerNorm": "layernorm", "RMSNorm": "rmsnorm"},
        default="LayerNorm",
    ),
    Flag("swiglu", "model.gated_mlp"),
    Flag("disable-bias-linear", "model.bias", on=False, off=True),
    Flag("add-qkv-bias", "model.biases", on=["qkv"], off=None),
    Together(
        ("qk-layernorm",),
        lambda given: {"model.qk_norm": "rmsnorm"} if "qk-layernorm" in given else {},
        _write_qk_norm,
    ),
    Together(("hidden-dropout", "attention-dropout"), _dropout, _write_dropout, all_needed=True),
    Choice(
        "attention-backend",
        "model.attention",
        values={"auto": "flash", "flash": "flash", "fused": "flash", "unfused": "standard"},
        default="auto",
    ),
    Together(
        (
            *("multi-latent-attention", "q-lora-rank", "kv-lora-rank", "qk-head-dim"),
            *("qk-pos-emb-head-dim", "v-head-dim"),
        ),
        _latent,
        _write_latent,
    ),
    Value("rotary-base", f"{_NUMERICS}.rope_theta", kind=float),
    Value("rotary-percent", f"{_NUMERICS}.rotary_share", kind=float),
    Together(("use-rope-scaling", "rope-scaling-factor"), _stretched, _write_stretched),
    Value("norm-epsilon", f"{_NUMERICS}.norm_epsilon", kind=float),
    Together((), _family),
    Value("mtp-num-layers", "model.mtp", default=0),
)
