"""GPT and its relatives: LayerNorm, a bias in every linear layer."""

from sim.config.errors import InputError
from sim.model.hugging_face.config import Config, Document, length
from sim.model.hugging_face.layers import in_turn, laid_out
from sim.model.hugging_face.llama import llama


def with_biases(config: Config, *dropouts: str) -> Document:
    """GPT's layers: LayerNorm, a bias in every linear layer."""
    return {
        "name": str(config("_name_or_path", "")),
        "family": "gpt",
        "gated_mlp": False,
        "normalisation": "layernorm",
        "bias": True,
        "dropout": config.dropout(*dropouts),
        "attention": "flash",
        "vocab": config("vocab_size", 0),
    }


def usual(config: Config) -> Document:
    return {
        "layers": config.layers(),
        "hidden": config("hidden_size"),
        "heads": config("num_attention_heads"),
    }


_GPT2_DROPS = ("resid_pdrop", "embd_pdrop", "attn_pdrop")


def _four_wide(config: Config, *dropouts: str) -> Document:
    """GPT's layers, by default with an ffn of four times the hidden width and a tied embedding."""
    return with_biases(config, *dropouts) | usual(config) | {
        "ffn": config("intermediate_size", 4 * config("hidden_size")),
        "seq": length(config),
        "tied_embeddings": config("tie_word_embeddings", True),
    }  # fmt: skip


def gpt2(config: Config) -> Document:
    """GPT-2, and StarCoder, whose heads may share keys and values (Shazeer 2019)."""
    config.refuse_unless("add_cross_attention", False)
    return _four_wide(config, *_GPT2_DROPS) | {
        "kv_heads": 1 if config("multi_query", False) else 0,
        "position_rows": config("max_position_embeddings"),
        "positions": "learned",
    }


def gpt_neo(config: Config) -> Document:
    """GPT-Neo: the layers that are called local have windows; by default every second layer."""
    count = config.layers()
    layers = config.each("attention_layers", count)
    if not layers:
        layers = (["global", "local"] * count)[:count]
        config.refuse_unless("attention_types", None, [[layers[:2], count // 2]])
    config.read |= {"attention_types"}
    local = {"window": config("window_size", 256)}
    shape = _four_wide(config, "resid_dropout", "embed_dropout", "attention_dropout") | {
        "position_rows": config("max_position_embeddings"),
        "positions": "learned",
        "bias": False,
        "biases": ["attention output", "ffn"],
        "norm_weights": 2,
    }
    return laid_out(shape, [("dense", local if name == "local" else {}) for name in layers])


def bloom(config: Config) -> Document:
    """BLOOM: ALiBi, and a norm after the embedding (BigScience 2022, arXiv 2211.05100, section
    3.2)."""
    config.refuse_unless("apply_residual_connection_post_layernorm", False)
    shape = _four_wide(config, "hidden_dropout", "attention_dropout")
    return shape | {"positions": "alibi", "embedding_norm": True}


def gpt_neox(config: Config) -> Document:
    config.refuse_unless("attention_bias", True)
    both = config("use_parallel_residual", True)
    kind = {"pattern": "parallel", "blocks": {"parallel": {"norms": 2}}} if both else {}
    return with_biases(config, "hidden_dropout", "attention_dropout") | usual(config) | kind | {
        "ffn": config("intermediate_size"),
        "seq": length(config),
        "tied_embeddings": config("tie_word_embeddings", False),
        "positions": "rotary",
    }  # fmt: skip


def phi(config: Config) -> Document:
    config.refuse_unless("qk_layernorm", False)
    return with_biases(config, "resid_pdrop", "embd_pdrop", "attention_dropout") | usual(config) | {
        "kv_heads": config("num_key_value_heads", 0),
        "ffn": config("intermediate_size"),
        "seq": length(config),
        "tied_embeddings": config("tie_word_embeddings", False),
        "positions": "rotary",
        "biases": ["logits"],
        "pattern": "parallel",
    }  # fmt: skip


def opt(config: Config) -> Document:
    """OPT, whose table of positions has two rows more than the config says
    (OPTLearnedPositionalEmbedding)."""
    config.refuse_unless("do_layer_norm_before", True)
    config.refuse_unless("enable_bias", True)
    config.refuse_unless("word_embed_proj_dim", config("hidden_size"))
    return with_biases(config, "dropout", "attention_dropout") | usual(config) | {
        "ffn": config("ffn_dim"),
        "seq": length(config),
        "position_rows": config("max_position_embeddings") + 2,
        "tied_embeddings": config("tie_word_embeddings", True),
        "positions": "learned",
    }  # fmt: skip


def gptj(config: Config) -> Document:
    return _four_wide(config, *_GPT2_DROPS) | {
        "tied_embeddings": config("tie_word_embeddings", False),
        "positions": "rotary",
        "bias": False,
        "biases": ["ffn", "logits"],
        "norm_weights": 2,
        "pattern": "parallel",
    }


def falcon(config: Config) -> Document:
    """Falcon: 7B has one norm and one head of keys; 40B and 180B ("new") have two norms and grouped
    queries."""
    new, heads = config("new_decoder_architecture", False), config("num_attention_heads")
    single, groups = 1 if config("multi_query", True) else heads, config("num_kv_heads", heads)
    norms = config("num_ln_in_parallel_attn", 2) if new else 1
    both = config("parallel_attn", True) or new
    kind = {"pattern": "parallel", "blocks": {"parallel": {"norms": norms}}} if both else {}
    alibi = config("alibi", False)
    return with_biases(config, "hidden_dropout", "attention_dropout") | usual(config) | kind | {
        "kv_heads": groups if new else single,
        "ffn": config("ffn_hidden_size", 4 * config("hidden_size")),
        "seq": length(config),
        "tied_embeddings": config("tie_word_embeddings", True),
        "positions": "alibi" if alibi else "rotary",
        "bias": config("bias", False),
        "norm_weights": 2,
    }  # fmt: skip


def starcoder2(config: Config) -> Document:
    drops = ("residual_dropout", "embedding_dropout", "attention_dropout")
    return with_biases(config, *drops) | usual(config) | {
        "kv_heads": config("num_key_value_heads", 2),
        "ffn": config("intermediate_size"),
        "seq": length(config),
        "window": config("sliding_window", 0),
        "tied_embeddings": config("tie_word_embeddings", True),
        "positions": "rotary",
        "bias": config("use_bias", True),
        "norm_weights": 2,
    }  # fmt: skip


def nemotron(config: Config) -> Document:
    """Nemotron: LayerNorm1P, squared ReLU, no biases."""
    return llama(config) | {"gated_mlp": False, "normalisation": "layernorm", "norm_weights": 2}


def stablelm(config: Config) -> Document:
    """StableLM. In StableLM 2 12B attention and feed-forward block share a norm, and heads have
    norms of their own."""
    both = {"pattern": "parallel"} if config("use_parallel_residual", False) else {}
    norms = "heads" if config("qk_layernorm", False) else "none"
    biases = ["qkv"] if config("use_qkv_bias", False) else []
    dropout = config.dropout("hidden_dropout", "attention_dropout")
    fields = {"normalisation": "layernorm", "norm_weights": 2, "biases": biases, "dropout": dropout}
    return llama(config) | fields | both | {"qk_norm": norms}


def cohere(config: Config) -> Document:
    """Command R: one LayerNorm without shifts for attention and feed-forward block of a layer."""
    norms = "heads" if config("use_qk_norm", False) else "none"
    config("logit_scale", 1.0)
    fields = {"normalisation": "layernorm", "norm_weights": 1, "pattern": "parallel"}
    return llama(config, tied=True) | fields | {"qk_norm": norms}


def cohere2(config: Config) -> Document:
    """Command R7B: only layers with a window have positions (Cohere2Attention)."""
    period = config("sliding_window_pattern", config("_sliding_window_pattern", 4))
    return in_turn(config, cohere(config), kind="parallel", period=period,
                   full={"positions": "none"})  # fmt: skip


def mpt(config: Config) -> Document:
    attention, hidden = config("attn_config", {}), config("d_model")
    if not attention.get("alibi") or attention.get("qk_ln") or not config("no_bias", True):
        fault = "attn_config without alibi, or with qk_ln, or no_bias = false is not modelled"
        raise InputError(config.place, fault, "describe the model in a TOML file")
    config.read |= {"learned_pos_emb", "norm_type", "embedding_fraction", "init_device"}
    return with_biases(config, "resid_pdrop", "emb_pdrop") | {
        "layers": config("n_layers"),
        "hidden": hidden,
        "heads": config("n_heads"),
        "ffn": config("expansion_ratio", 4) * hidden,
        "seq": length(config, "max_seq_len"),
        "tied_embeddings": config("tie_word_embeddings", True),
        "positions": "alibi",
        "bias": False,
        "family": "mpt",
    }
