"""GPT and its relatives: LayerNorm, a bias in every linear layer."""

from sim.model.hugging_face.config import Config, Document, length


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
        "layers": config("num_hidden_layers"),
        "hidden": config("hidden_size"),
        "heads": config("num_attention_heads"),
    }


def gpt2(config: Config) -> Document:
    config.refuse_unless("add_cross_attention", False)
    hidden = config("n_embd")
    return with_biases(config, "resid_pdrop", "embd_pdrop", "attn_pdrop") | {
        "layers": config("n_layer"),
        "hidden": hidden,
        "heads": config("n_head"),
        "ffn": config("n_inner", 4 * hidden),
        "seq": length(config, "n_positions"),
        "position_rows": config("n_positions"),
        "tied_embeddings": config("tie_word_embeddings", True),
        "positions": "learned",
    }


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
    """Its table of positions has two rows more than it says (OPTLearnedPositionalEmbedding)."""
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
