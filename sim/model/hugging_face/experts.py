"""Models with experts in some or all of their layers."""

from sim.config.errors import InputError
from sim.model.hugging_face.config import Config, Document
from sim.model.hugging_face.layers import in_turn, laid_out, layer_types
from sim.model.hugging_face.llama import ernie, granite, hunyuan, llama, mistral, unrotated


def _sparse(config: Config) -> list[bool]:
    """Return which layers of a Qwen model have experts (Qwen2MoeDecoderLayer.__init__)."""
    count, step = config.layers(), config.positive("decoder_sparse_step", 1)
    dense = config.some("mlp_only_layers", count)
    return [layer not in dense and (layer + 1) % step == 0 for layer in range(count)]


def qwen2_moe(config: Config) -> Document:
    config.refuse_unless("use_sliding_window", False)
    config("sliding_window", 0)
    biases = ["qkv"] if config("qkv_bias", True) else []
    shared = {"shared_ffn": config("shared_expert_intermediate_size"), "shared_gate": True}
    return _qwen_experts(config, {"biases": biases}, shared)


def qwen3_moe(config: Config) -> Document:
    config.refuse_unless("use_sliding_window", False)
    config("sliding_window", 0)
    return _qwen_experts(config, {"qk_norm": "rmsnorm"}, {})


def qwen_experts(config: Config) -> tuple[Document, Document, list[bool]]:
    """Return the shape of Qwen3-Next's layers, its experts, and which layers have experts."""
    shared = {"shared_ffn": config("shared_expert_intermediate_size"), "shared_gate": True}
    fields = {"experts": config("num_experts"), "top_k": config("num_experts_per_tok")}
    fields |= {"ffn": config("moe_intermediate_size"), **shared}
    return llama(config), fields, _sparse(config)


def _qwen_experts(config: Config, further: Document, shared: Document) -> Document:
    experts = config("num_local_experts", 0) or config("num_experts")
    fields = {"experts": experts, "top_k": config("num_experts_per_tok")}
    fields |= {"ffn": config("moe_intermediate_size"), **shared}
    return in_turn(config, llama(config) | further, experts=fields, sparse=_sparse(config))


def _in_every_layer(config: Config, shape: Document) -> Document:
    """Return a model with experts in every layer, each as wide as `intermediate_size`."""
    fields = {"experts": config("num_local_experts"), "top_k": config("num_experts_per_tok")}
    fields |= {"ffn": config("intermediate_size")}
    every = [True] * config.layers()
    return in_turn(config, shape, experts=fields, sparse=every)


def minimax_m2(config: Config) -> Document:
    if config("num_mtp_modules", 0) and config("use_mtp", False):
        _without_mtp(config)
    config.read |= {"attn_type_list", "mlp_intermediate_size", "mtp_transformer_layers"}
    config.read |= {"use_routing_bias", "use_mtp"}
    config.refuse_unless("use_qk_norm", True)
    config.refuse_unless("qk_norm_type", "per_layer")
    config.refuse_unless("shared_intermediate_size", 0)
    return _in_every_layer(config, mistral(config) | {"qk_norm": "whole"})


def phimoe(config: Config) -> Document:
    """Phi 3.5 MoE: LayerNorm, biases in attention and logits."""
    config.read |= {"input_jitter_noise"}
    shape = llama(config)
    biases = [*shape["biases"], *(["logits"] if config("lm_head_bias", False) else [])]
    norms = {"normalisation": "layernorm", "norm_weights": 2}
    window = {"window": config("sliding_window", 0)}
    return _in_every_layer(config, shape | norms | {"biases": biases} | window)


def dbrx(config: Config) -> Document:
    """DBRX: LayerNorm without shifts; the clamp of Q, K and V is left out."""
    for table in ("attn_config", "ffn_config"):
        config(table, {})  # Raises for a value that is no table; tables have been merged already.
    if clip := config("clip_qkv", 0.0):
        config.notes.append(f"{config.place}: clip_qkv = {clip} is not modelled")
    config.read |= {"ffn_act_fn", "moe_jitter_eps", "moe_loss_weight"}
    config.read |= {"moe_normalize_expert_weights"}
    dropout = config.dropout("attn_pdrop", "resid_pdrop", "emb_pdrop")
    norms = {"normalisation": "layernorm", "norm_weights": 1, "dropout": dropout}
    return _in_every_layer(config, llama(config) | norms)


def hunyuan_moe(config: Config) -> Document:
    """Hunyuan's model with experts, whose shared experts are as wide as the routed experts."""
    config.read |= {"moe_intermediate_size", "use_mixed_mlp_moe"}
    config.refuse_unless("moe_layer_num_skipped", 0)
    fields = {"experts": config("num_experts"), "top_k": _alike(config, "moe_topk")}
    fields |= {"ffn": config("intermediate_size"), "shared": _alike(config, "num_shared_expert")}
    return in_turn(config, hunyuan(config), experts=fields, sparse=[True] * config.layers())


def _alike(config: Config, key: str) -> int:
    """Return a number that a config may list for each layer. Raises `InputError` where the layers
    differ."""
    value = config.content.get(key, 1)
    if isinstance(value, list):
        values = set(config.each(key, config.layers()))
        if len(values) != 1:
            fault = f"{key} has no number that all layers share"
            raise InputError(config.place, fault, "describe the model in a TOML file")
        (value,) = values
    config.read.add(key)
    return int(Config({key: value}, config.place)(key, 1))


def mixtral(config: Config) -> Document:
    return _in_every_layer(config, mistral(config))


def deepseek(config: Config) -> Document:
    """DeepSeek V2 and V3, and Kimi K2. `transformers` does not train multi-token prediction."""
    config.refuse_unless("attention_bias", False)
    config.refuse_unless("moe_layer_freq", 1)
    nope, rotary = config("qk_nope_head_dim"), config("qk_rope_head_dim")
    shape = llama(config) | {
        "kv_heads": 0,
        "head": nope + rotary,
        "value_head": config("v_head_dim"),
    }
    latent = {"query": config("q_lora_rank", 0), "kv": config("kv_lora_rank"), "rotary": rotary}
    experts, sparse = _deepseek_experts(config), _behind_dense(config)
    return in_turn(config, shape | {"latent": latent}, experts=experts, sparse=sparse)


def _deepseek_experts(config: Config) -> Document:
    fields = {"experts": config("n_routed_experts"), "top_k": config("num_experts_per_tok")}
    fields |= {"ffn": config("moe_intermediate_size"), "shared": config("n_shared_experts", 0)}
    grouped = config("topk_method", "noaux_tc") != "greedy" and config("n_group", 1) > 1
    if grouped:
        fields |= {"groups": config("n_group"), "limit": config("topk_group")}
    config.read |= {"n_group", "topk_group"}
    if config("num_nextn_predict_layers", 0):
        _without_mtp(config)
    return fields


def _without_mtp(config: Config) -> None:
    note = "the layers of multi-token prediction are left out, as in transformers"
    config.notes.append(f"{config.place}: {note}; set model.mtp to have them")


def _behind_dense(config: Config) -> list[bool]:
    layers, dense = config.layers(), config("first_k_dense_replace", 0)
    return [layer >= dense for layer in range(layers)]


def dots1(config: Config) -> Document:
    """dots.llm1: Qwen 3's attention, and DeepSeek-V3's experts."""
    config.refuse_unless("moe_layer_freq", 1)
    shape = llama(config) | {"qk_norm": "rmsnorm"}
    return in_turn(config, shape, experts=_deepseek_experts(config), sparse=_behind_dense(config))


def ernie_moe(config: Config) -> Document:
    """ERNIE 4.5. The biases that balance its experts are not counted: no gradient trains them."""
    config.read |= {"moe_capacity", "moe_gate", "moe_use_aux_free"}
    config.refuse_unless("use_bias", False)
    config.refuse_unless("moe_layer_freq", 1)
    config.refuse_unless("moe_layer_end_index", -1, config.layers() - 1)
    experts, sparse = _deepseek_experts(config), _behind_dense(config)
    return in_turn(config, ernie(config), experts=experts, sparse=sparse)


def gpt_oss(config: Config) -> Document:
    config.refuse_unless("attention_bias", True)
    fields = {"experts": config("num_local_experts"), "top_k": config("num_experts_per_tok")}
    fields |= {"ffn": config("intermediate_size")}
    every = [True] * config.layers()
    shape = llama(config) | {"bias": True, "biases": [], "sinks": True}
    shape["glu_limit"] = config("swiglu_limit", 7.0)
    return in_turn(config, shape, experts=fields, sparse=every, period=2)


def granite_moe(config: Config) -> Document:
    return _in_every_layer(config, granite(config))


def olmoe(config: Config) -> Document:
    config.refuse_unless("clip_qkv", None)
    fields = {"experts": config("num_experts"), "top_k": config("num_experts_per_tok")}
    fields |= {"ffn": config("intermediate_size")}
    every = [True] * config.layers()
    return in_turn(config, llama(config) | {"qk_norm": "whole"}, experts=fields, sparse=every)


def glm4_moe(config: Config) -> Document:
    """GLM-4.5: grouped queries, and DeepSeek-V3's experts."""
    biases = ["qkv"] if config("attention_bias", False) else []
    norms = "rmsnorm" if config("use_qk_norm", False) else "none"
    shape = llama(config) | {"biases": biases, "qk_norm": norms}
    shape["head"] = config("head_dim", shape["hidden"] // shape["heads"])
    return in_turn(config, shape, experts=_deepseek_experts(config), sparse=_behind_dense(config))


def llama4(config: Config) -> Document:
    """Llama 4: three of four layers have chunks and positions; all layers or every second layer
    have experts."""
    types = layer_types(config, count := config.layers())
    step = config.positive("interleave_moe_layer_step", 1)
    usual = [layer for layer in range(count) if (layer + 1) % step == 0]
    sparse = set(config.some("moe_layers", count) or usual)
    bare = {"positions": "none", "qk_norm": "none"}
    chunk = config("attention_chunk_size", 0)
    changes = [bare if none else {"chunk": chunk} if chunk else {} for none in unrotated(config)]
    if types and [name == "full_attention" for name in types] != unrotated(config):
        fault = "layer_types and no_rope_layers name different layers"
        raise InputError(config.place, fault, "only layers without positions may see all keys")
    experts = {"experts": config("num_local_experts"), "top_k": config("num_experts_per_tok")}
    experts |= {"ffn": config("intermediate_size"), "shared": 1}
    config.read |= {"attn_scale", "attn_temperature_tuning", "floor_scale"}
    shape = llama(config) | {
        "ffn": config("intermediate_size_mlp"),
        "qk_norm": "l2" if config("use_qk_norm", True) else "none",
    }
    kinds = ["experts" if layer in sparse else "dense" for layer in range(count)]
    return laid_out(shape, list(zip(kinds, changes, strict=True)), experts=experts)
