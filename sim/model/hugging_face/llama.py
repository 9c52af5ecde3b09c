"""Llama and its dense relatives: RMSNorm, rotary positions, a gated feed-forward block."""

from sim.model.hugging_face.config import Config, Document, length
from sim.model.hugging_face.layers import in_turn


def llama(config: Config, *, tied: bool = False) -> Document:
    """Llama, and what its relatives share with it."""
    biases = ["qkv", "attention output"] if config("attention_bias", False) else []
    biases += ["ffn"] if config("mlp_bias", False) else []
    return {
        "name": str(config("_name_or_path", "")),
        "family": "llama",
        "layers": config("num_hidden_layers"),
        "hidden": config("hidden_size"),
        "heads": config("num_attention_heads"),
        "kv_heads": config("num_key_value_heads", config("num_attention_heads")),
        "head": config("head_dim", 0),
        "ffn": config("intermediate_size"),
        "gated_mlp": True,
        "vocab": config("vocab_size"),
        "seq": length(config),
        "tied_embeddings": config("tie_word_embeddings", tied),
        "positions": "rotary",
        "normalisation": "rmsnorm",
        "bias": False,
        "biases": biases,
        "dropout": config.dropout("attention_dropout"),
        "attention": "flash",
    }


def mistral(config: Config) -> Document:
    return llama(config) | {"window": config("sliding_window", 0)}


def qwen2(config: Config) -> Document:
    first = config("max_window_layers", 28) if config("use_sliding_window", False) else None
    return in_turn(config, llama(config) | {"biases": ["qkv"]}, slides_from=first)


def qwen3(config: Config) -> Document:
    first = config("max_window_layers", 28) if config("use_sliding_window", False) else None
    return in_turn(config, llama(config) | {"qk_norm": "rmsnorm"}, slides_from=first)


def gemma(config: Config) -> Document:
    return llama(config, tied=True)


def gemma2(config: Config) -> Document:
    return in_turn(config, llama(config, tied=True) | {"output_norms": True}, period=2)


def gemma3(config: Config) -> Document:
    period = config("sliding_window_pattern", config("_sliding_window_pattern", 6))
    shape = llama(config, tied=True) | {"output_norms": True, "qk_norm": "rmsnorm"}
    return in_turn(config, shape, period=period)


def phi3(config: Config) -> Document:
    shape = llama(config) | {"window": config("sliding_window", 0)}
    return shape | {"dropout": config.dropout("resid_pdrop", "embd_pdrop", "attention_dropout")}
