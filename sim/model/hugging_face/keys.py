"""Names of keys by the type of a config, and the values of keys that a config leaves out.

The tables are the `attribute_map` of each type and the defaults of its config in `transformers`
(src/transformers/models/*/configuration_*.py, 5.24), on which checkpoints rely.
"""

from collections.abc import Mapping

from sim.model.hugging_face.config import Document

_GPT2 = {
    "n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads",
    "n_positions": "max_position_embeddings", "n_inner": "intermediate_size",
}  # fmt: skip
_BLOOM = {
    "n_embed": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads",
    "seq_length": "max_position_embeddings",
}  # fmt: skip
# The usual name of a key by the config's name, for each type of config with names of its own.
_NAMES: Mapping[str, Mapping[str, str]] = {
    "bloom": _BLOOM,
    "dbrx": {
        "d_model": "hidden_size", "n_layers": "num_hidden_layers", "n_heads": "num_attention_heads",
        "max_seq_len": "max_position_embeddings", "kv_n_heads": "num_key_value_heads",
        "ffn_hidden_size": "intermediate_size", "moe_num_experts": "num_local_experts",
        "moe_top_k": "num_experts_per_tok",
    },
    "ernie4_5_moe": {
        "moe_num_experts": "n_routed_experts", "moe_k": "num_experts_per_tok",
        "moe_num_shared_experts": "n_shared_experts",
        "moe_layer_start_index": "first_k_dense_replace", "moe_layer_interval": "moe_layer_freq",
    },
    "exaone": {"num_layers": "num_hidden_layers"},
    "falcon": _BLOOM | {"n_head_kv": "num_kv_heads"},
    **dict.fromkeys(("gpt2", "gptj", "gpt_bigcode"), _GPT2),
    "gpt_neo": {"num_layers": "num_hidden_layers", "num_heads": "num_attention_heads"},
    "internlm2": {"bias": "attention_bias"},
    "internlm3": {"qkv_bias": "attention_bias", "bias": "mlp_bias"},
}  # fmt: skip
# Tables of a config whose keys are read like the config's own keys.
_TABLES = {"dbrx": ("attn_config", "ffn_config")}

_LLAMA = {
    "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
    "num_attention_heads": 32, "max_position_embeddings": 2048,
}  # fmt: skip
_GEMMA3 = {
    "vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
    "max_position_embeddings": 131072, "sliding_window": 4096,
}  # fmt: skip
_MISTRAL = {
    "intermediate_size": 14336, "num_key_value_heads": 8, "max_position_embeddings": 131072,
}  # fmt: skip
# The value of a key that a config lacks.
_DEFAULTS: Mapping[str, Document] = {
    "bloom": {"max_position_embeddings": 2048},
    "cohere": {"max_position_embeddings": 8192},
    "falcon": {"max_position_embeddings": 2048},
    "ernie4_5_moe": {"first_k_dense_replace": 1, "n_shared_experts": 2},
    "gemma3_text": _GEMMA3,
    "gpt_bigcode": {"multi_query": True},
    "llama": _LLAMA,
    "mistral": _LLAMA | _MISTRAL,
}


def translated(content: Mapping[str, object], kind: str) -> tuple[Document, list[str]]:
    """Return a config with usual names, completed by defaults, and a line for each such default.

    >>> translated({"n_embed": 4096, "seq_length": 2048}, "bloom")
    ({'hidden_size': 4096, 'max_position_embeddings': 2048}, [])
    >>> translated({}, "falcon")
    ({'max_position_embeddings': 2048}, ['max_position_embeddings = 2,048'])
    """
    names, flat = _NAMES.get(kind, {}), dict(content)
    for table in _TABLES.get(kind, ()):
        if isinstance(inner := flat.get(table), Mapping):
            flat = {**inner, **{key: value for key, value in flat.items() if key != table}}
    ours = {names.get(key, key): value for key, value in flat.items()}
    absent = {key: value for key, value in _DEFAULTS.get(kind, {}).items() if key not in ours}
    return absent | ours, [f"{key} = {value:,}" for key, value in absent.items()]
