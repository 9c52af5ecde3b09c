"""Llama and its dense relatives: RMSNorm, rotary positions, a gated feed-forward block."""

from sim.model.hugging_face.config import Config, Document, length
from sim.model.hugging_face.layers import in_turn, laid_out


def llama(config: Config, *, tied: bool = False) -> Document:
    """Llama; its relatives take its keys and replace some of them."""
    biases = ["qkv", "attention output"] if config("attention_bias", False) else []
    biases += ["ffn"] if config("mlp_bias", False) else []
    return {
        "name": str(config("_name_or_path", "")),
        "family": "llama",
        "layers": config.layers(),
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


def hunyuan(config: Config) -> Document:
    """Hunyuan's smaller models, in which layers share no keys and values."""
    config.refuse_unless("use_cla", False)
    config.refuse_unless("use_qk_norm", True)
    config.read |= {"cla_share_factor", "attention_head_dim"}
    return llama(config) | {"qk_norm": "rmsnorm"}


def apertus(config: Config) -> Document:
    """Llama with xIELU in place of a gated activation (Huang and Schlag 2024, arXiv 2411.13010)."""
    config.refuse_unless("qk_norm", True)
    config.refuse_unless("post_norm", False)
    return llama(config) | {"gated_mlp": False, "activation_weights": 2, "qk_norm": "rmsnorm"}


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


def granite(config: Config) -> Document:
    """Llama with fixed factors on embeddings, attention, residuals and logits."""
    config.read |= {"embedding_multiplier", "residual_multiplier", "attention_multiplier"}
    config("logits_scaling", 1.0)
    return llama(config)


def glm(config: Config) -> Document:
    return llama(config) | {"biases": ["qkv"] if config("attention_bias", False) else []}


def glm4(config: Config) -> Document:
    return glm(config) | {"output_norms": True}


def seed_oss(config: Config) -> Document:
    biases = ["qkv"] if config("attention_bias", True) else []
    biases += ["attention output"] if config("attention_out_bias", False) else []
    biases += ["ffn"] if config("mlp_bias", False) else []
    dropout = config.dropout("attention_dropout", "residual_dropout")
    return llama(config) | {"biases": biases, "dropout": dropout}


def ernie(config: Config) -> Document:
    biases = ["qkv", "attention output", "ffn"] if config("use_bias", False) else []
    return llama(config, tied=True) | {"biases": biases}


def arcee(config: Config) -> Document:
    return llama(config) | {"gated_mlp": False}


def olmo(config: Config) -> Document:
    """OLMo: LayerNorm without gains (Groeneveld et al. 2024, arXiv 2402.00838, section 2.1)."""
    config.refuse_unless("clip_qkv", None)
    return llama(config) | {"normalisation": "layernorm", "norm_weights": 0}


def olmo2(config: Config) -> Document:
    """OLMo 2 and 3: norms only after attention and feed-forward block; OLMo 3 has windows, too."""
    behind = {"output_norms": True, "pre_norm": False, "qk_norm": "whole"}
    return in_turn(config, llama(config) | behind)


def exaone4(config: Config) -> Document:
    """EXAONE 4: if some layers have a window, only they have positions (Exaone4Attention)."""
    config.read |= {"sliding_window_pattern"}
    shape = llama(config) | {"output_norms": True, "pre_norm": False, "qk_norm": "rmsnorm"}
    return in_turn(config, shape, full={"positions": "none"} if config("sliding_window", 0) else {})


def smollm3(config: Config) -> Document:
    """SmolLM3: layers with a zero in `no_rope_layers` have no positions (by default every fourth
    layer, SmolLM3Config)."""
    config.refuse_unless("use_sliding_window", False)
    config.read |= {"sliding_window", "layer_types"}
    shape, kinds = llama(config, tied=True), unrotated(config)
    return laid_out(shape, [("dense", {"positions": "none"} if kind else {}) for kind in kinds])


def unrotated(config: Config) -> list[bool]:
    """Return for each layer whether it has no positions."""
    count, every = config.layers(), config.positive("no_rope_layer_interval", 4)
    usual = [(layer + 1) % every != 0 for layer in range(count)]
    return [not left_out for left_out in config.each("no_rope_layers", count) or usual]
