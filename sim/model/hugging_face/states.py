"""Models with states in place of attention in some or all of their layers."""

from math import ceil

from sim.config.errors import InputError
from sim.model.hugging_face.config import Config, Document, length
from sim.model.hugging_face.experts import qwen_experts
from sim.model.hugging_face.layers import laid_out
from sim.model.hugging_face.llama import granite, llama

_UNSAID = {"use_mamba_kernels", "use_mambapy", "use_associative_scan", "residual_in_fp32",
           "rescale_prenorm_residual", "time_step_min", "time_step_max", "time_step_floor",
           "time_step_limit", "mamba_ssm_cache_dtype"}  # fmt: skip


def mamba2(config: Config) -> Document:
    """Mamba 2."""
    config.read |= {*_UNSAID, "expand", "time_step_rank", "rms_norm"}
    heads, head = config("num_heads", 128), config("head_dim", 64)
    mixer = {
        "heads": heads, "head": head, "state": config("state_size", 128),
        "groups": config("n_groups", 8), "taps": config("conv_kernel", 4),
        "chunk": config("chunk_size", 256), "bias": config("use_bias", False),
        "convolution_bias": config("use_conv_bias", True),
    }  # fmt: skip
    return _alone(config, mixer)


def mamba(config: Config) -> Document:
    """Mamba, in which every channel is a head."""
    config.read |= {*_UNSAID, "time_step_scale", "time_step_init_scheme"}
    hidden, rank = config("hidden_size"), config.content.get("time_step_rank")
    config.read |= {"time_step_rank", "expand"}
    mixer = {
        "rule": "mamba", "heads": config("intermediate_size", 0) or 2 * hidden, "head": 1,
        "state": config("state_size", 16), "taps": config("conv_kernel", 4),
        "rank": rank if isinstance(rank, int) else ceil(hidden / 16),
        "bias": config("use_bias", False), "convolution_bias": config("use_conv_bias", True),
    }  # fmt: skip
    return _alone(config, mixer, tied=True)


def _alone(config: Config, mixer: Document, *, tied: bool = False) -> Document:
    """Return a model whose layers all have a state. It has no attention, so the model's `heads` are
    the heads of the states."""
    heads, head = mixer["heads"], mixer["head"]
    shape = {
        "name": str(config("_name_or_path", "")),
        "family": "llama", "layers": config.layers(), "hidden": config("hidden_size"),
        "heads": heads, "head": head, "ffn": heads * head, "vocab": config("vocab_size"),
        "seq": 4096, "tied_embeddings": config("tie_word_embeddings", tied),
        "positions": "none", "normalisation": "rmsnorm", "bias": False, "dropout": False,
        "attention": "flash",
    }  # fmt: skip
    return shape | {"pattern": "state", "blocks": {"state": mixer}}


def jamba(config: Config) -> Document:
    """Jamba: Mamba's mixers with norms, attention without positions in every eighth layer, experts
    in every second layer (JambaConfig)."""
    config.read |= _UNSAID
    shape = llama(config) | {"positions": "none"}
    inner, rank = config("mamba_expand", 2) * shape["hidden"], config.content.get("mamba_dt_rank")
    config.read.add("mamba_dt_rank")
    mixer = {
        "rule": "mamba", "heads": inner, "state": config("mamba_d_state", 16), "norms": True,
        "taps": config("mamba_d_conv", 4), "bias": config("mamba_proj_bias", False),
        "convolution_bias": config("mamba_conv_bias", True),
        "rank": rank if isinstance(rank, int) else ceil(shape["hidden"] / 16),
    }  # fmt: skip
    attends = _every(config, "attn_layer_period", 8, "attn_layer_offset", 4)
    experts = {"experts": config("num_experts", 16), "top_k": config("num_experts_per_tok", 2)}
    experts |= {"ffn": shape["ffn"]}
    sparse = _every(config, "expert_layer_period", 2, "expert_layer_offset", 1)
    return _mixed(shape, attends, sparse, mixer, experts)


def bamba(config: Config) -> Document:
    """Bamba: Mamba 2's mixers, and attention in the layers that `attn_layer_indices` names."""
    config.read |= {"z_loss_coefficient"}
    shape = llama(config)
    mixer = _mixers(config, shape["hidden"])
    attends = config.some("attn_layer_indices", config.layers())
    layers = range(config.layers())
    return _mixed(shape, [layer in attends for layer in layers], [False for _ in layers], mixer, {})


def _mixers(config: Config, hidden: int) -> Document:
    """Return the settings of Mamba 2's mixers from the keys of Bamba's config."""
    config.read |= {*_UNSAID, "mamba_expand", "mamba_d_head"}
    inner = config("mamba_d_ssm", 0) or config("mamba_expand", 2) * hidden
    heads = config("mamba_n_heads", 128)
    return {
        "heads": heads, "head": inner // heads, "state": config("mamba_d_state", 256),
        "groups": config("mamba_n_groups", 1), "taps": config("mamba_d_conv", 4),
        "chunk": config("mamba_chunk_size", 256), "bias": config("mamba_proj_bias", False),
        "convolution_bias": config("mamba_conv_bias", True),
    }  # fmt: skip


def falcon_h1(config: Config) -> Document:
    """Falcon-H1: attention and Mamba 2's mixer side by side in each layer. The factors on many of
    its products cost nothing here."""
    config.read |= {"mamba_norm_before_gate", "layers_block_type", "mlp_expansion_factor"}
    config.read |= {"mamba_use_mlp", "attn_layer_indices"}
    config.refuse_unless("projectors_bias", config("mamba_proj_bias", False))
    config.read |= {key for key in config.content if key.endswith(("_multiplier", "_multipliers"))}
    shape = llama(config)
    mixer = _mixers(config, shape["hidden"]) | {"gated_norm": config("mamba_rms_norm", False)}
    return shape | {"pattern": "state_beside", "blocks": {"state_beside": mixer}}


def minimax(config: Config) -> Document:
    """MiniMax: layers of full attention and of lightning attention alternate unless `layer_types`
    says otherwise; all layers have experts."""
    count, shape = config.layers(), llama(config)
    config.read |= {key for key in config.content if key.endswith(("alpha_factor", "beta_factor"))}
    config.refuse_unless("sliding_window", None)
    types = config.each("layer_types", count) or ["full_attention", "linear_attention"] * count
    head = shape["head"] or shape["hidden"] // shape["heads"]
    mixer = {
        "rule": "lightning", "heads": shape["heads"], "groups": shape["heads"], "head": head,
        "state": head, "taps": 0, "chunk": config("block_size", 256),
    }  # fmt: skip
    experts = {"experts": config("num_local_experts"), "top_k": config("num_experts_per_tok")}
    experts |= {"ffn": shape["ffn"]}
    attends = [kind == "full_attention" for kind in types[:count]]
    return _mixed(shape, attends, [True] * count, mixer, experts)


def nemotron_h(config: Config) -> Document:
    """Nemotron-H: each layer is a mixer, attention without positions, a feed-forward block, or
    experts. Feed-forward block and experts are not gated."""
    config.read |= {*_UNSAID, "expand", "mamba_hidden_act", "mlp_hidden_act", "head_dim"}
    config.read |= {"moe_shared_expert_overlap", "attention_head_dim", "mtp_layers_block_type"}
    config.read |= {"mtp_hybrid_override_pattern", "num_nextn_predict_layers", "mamba_proj_bias"}
    kinds = _kinds(config)
    shape = _nemotron_shape(config, len(kinds))
    mixer = {
        "heads": config("mamba_num_heads", 128), "head": config("mamba_head_dim", 64),
        "state": config("ssm_state_size", 128), "groups": config("n_groups", 8),
        "taps": config("conv_kernel", 4), "chunk": config("chunk_size", 128),
        "bias": config("use_bias", False), "convolution_bias": config("use_conv_bias", True),
    }  # fmt: skip
    blocks: Document = {"state": mixer} if "state" in kinds else {}
    if "experts_alone" in kinds:
        blocks["experts_alone"] = _nemotron_experts(config)
        shape["family"] = "moe"
    return laid_out(shape | {"blocks": blocks}, [(kind, {}) for kind in kinds])


_LETTERS = {"M": "state", "*": "attention", "-": "feed_forward", "E": "experts_alone"}
_TYPES = {"mamba": "state", "linear_attention": "state", "attention": "attention",
          "full_attention": "attention", "mlp": "feed_forward", "moe": "experts_alone"}  # fmt: skip


def _kinds(config: Config) -> list[str]:
    """Return the kind of each layer from the config's letters or names. Raises `InputError`."""
    letters: str = config("hybrid_override_pattern", "")
    names = config("layers_block_type", []) or config("layer_types", [])
    table, given = (_LETTERS, list(letters)) if letters else (_TYPES, names)
    config.read.add("num_hidden_layers")
    if unknown := [kind for kind in given if kind not in table]:
        fault = f"layers of {unknown[0]!r} are not modelled"
        raise InputError(config.place, fault, f"known: {', '.join(table)}")
    if not given:
        fault = "hybrid_override_pattern and layers_block_type are missing"
        raise InputError(config.place, fault, "take the config of the checkpoint")
    return [table[kind] for kind in given]


def _nemotron_shape(config: Config, layers: int) -> Document:
    heads = config("num_attention_heads")
    biases = ["qkv", "attention output"] if config("attention_bias", False) else []
    return {
        "name": str(config("_name_or_path", "")),
        "family": "llama", "layers": layers, "hidden": config("hidden_size"), "heads": heads,
        "kv_heads": config("num_key_value_heads", heads),
        "head": config("head_dim", 0) or config("attention_head_dim", 0),
        "ffn": config("intermediate_size"), "gated_mlp": False, "vocab": config("vocab_size"),
        "seq": length(config), "tied_embeddings": config("tie_word_embeddings", False),
        "positions": "none", "normalisation": "rmsnorm", "bias": False,
        "biases": biases + (["ffn"] if config("mlp_bias", False) else []),
        "dropout": config.dropout("attention_dropout", "hidden_dropout"), "attention": "flash",
    }  # fmt: skip


def _nemotron_experts(config: Config) -> Document:
    fields = {"experts": config("n_routed_experts"), "top_k": config("num_experts_per_tok")}
    fields |= {"ffn": config("moe_intermediate_size")}
    fields |= {"shared_ffn": config("moe_shared_expert_intermediate_size")}
    fields |= {"latent": config("moe_latent_size", 0)}
    if config("n_group", 1) > 1:
        fields |= {"groups": config("n_group"), "limit": config("topk_group")}
    config.read |= {"n_shared_experts", "topk_group"}
    return fields


def granite_hybrid(config: Config) -> Document:
    """Granite 4: each layer has a state or attention, then experts, one of which is wide and shared
    by all tokens. Without routed experts the shared expert is the feed-forward block."""
    kinds, shape = _kinds(config), granite(config)
    shape |= {"positions": "rotary" if config("position_embedding_type", "") == "rope" else "none"}
    experts = {"experts": config("num_local_experts", 8), "ffn": shape["ffn"]}
    experts |= {"top_k": config("num_experts_per_tok", 2)}
    experts |= {"shared_ffn": config("shared_intermediate_size", 1024)}
    sparse = experts["experts"] > 0
    shape |= {} if sparse else {"ffn": experts["shared_ffn"]}
    attends = [kind == "attention" for kind in kinds]
    mixer = _mixers(config, shape["hidden"])
    return _mixed(shape, attends, [sparse] * len(kinds), mixer, experts if sparse else {})


def qwen3_next(config: Config) -> Document:
    """Qwen3-Next: gated delta nets in three of four layers, gated attention in every fourth, and
    experts in the layers that the config says (by default all)."""
    return _with_delta_nets(config, *qwen_experts(config))


def qwen3_5(config: Config) -> Document:
    """Qwen3.5: Qwen3-Next's gated delta nets and gated attention, with feed-forward blocks."""
    return _with_delta_nets(config, llama(config), {}, [False] * config.layers())


def qwen3_5_moe(config: Config) -> Document:
    """Qwen3.5's model with experts, which has the layers of Qwen3-Next."""
    config.content = {"intermediate_size": config("moe_intermediate_size"), **config.content}
    return qwen3_next(config)


def _with_delta_nets(
    config: Config, shape: Document, experts: Document, sparse: list[bool]
) -> Document:
    count, interval = config.layers(), config.positive("full_attention_interval", 4)
    types = config.each("layer_types", count)
    attends = [kind == "full_attention" for kind in types] or [
        (layer + 1) % interval == 0 for layer in range(count)
    ]
    mixer = {
        "rule": "delta", "heads": config("linear_num_value_heads", 32),
        "head": config("linear_value_head_dim", 128), "state": config("linear_key_head_dim", 128),
        "groups": config("linear_num_key_heads", 16), "taps": config("linear_conv_kernel_dim", 4),
        "convolution_bias": False, "chunk": 64,
    }  # fmt: skip
    shape |= {"qk_norm": "rmsnorm", "output_gate": True}
    return _mixed(shape, attends, sparse, mixer, experts)


def _every(config: Config, period: str, usual: int, offset: str, at: int) -> list[bool]:
    """Return for each layer whether it is number `offset` of its period of layers."""
    every, place = config.positive(period, usual), config(offset, at)
    return [layer % every == place for layer in range(config.layers())]


def _mixed(
    shape: Document, attends: list[bool], sparse: list[bool], mixer: Document, experts: Document
) -> Document:
    """Return a model whose layers have attention (`attends`) or a state, and experts (`sparse`) or
    a feed-forward block."""
    names = {(True, True): "experts", (True, False): "dense", (False, True): "state_experts",
             (False, False): "state_dense"}  # fmt: skip
    kinds = [names[pair] for pair in zip(attends, sparse, strict=True)]
    blocks: Document = {"state_dense": mixer, "state_experts": {**experts, "mixer": mixer}}
    blocks = {name: table for name, table in blocks.items() if name in kinds}
    family = {"family": "moe"} if any(sparse) else {}
    layers: list[tuple[str, Document]] = [(kind, {}) for kind in kinds]
    return laid_out(shape | family | {"blocks": blocks}, layers, experts=experts)
