"""Models with experts, in some of their layers or in all."""

from sim.config.errors import InputError
from sim.model.hugging_face.config import Config, Document
from sim.model.hugging_face.layers import in_turn, laid_out, layer_types
from sim.model.hugging_face.llama import granite, llama, mistral, unrotated


def _sparse(config: Config) -> list[bool]:
    """Which layers of a Qwen have experts (Qwen2MoeDecoderLayer.__init__)."""
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


def _qwen_experts(config: Config, further: Document, shared: Document) -> Document:
    experts = config("num_local_experts", 0) or config("num_experts")
    fields = {"experts": experts, "top_k": config("num_experts_per_tok")}
    fields |= {"ffn": config("moe_intermediate_size"), **shared}
    return in_turn(config, llama(config) | further, experts=fields, sparse=_sparse(config))


def _in_every_layer(config: Config, shape: Document) -> Document:
    """Experts as wide as the dense model's own layers would be."""
    fields = {"experts": config("num_local_experts"), "top_k": config("num_experts_per_tok")}
    fields |= {"ffn": config("intermediate_size")}
    every = [True] * config.layers()
    return in_turn(config, shape, experts=fields, sparse=every)


def mixtral(config: Config) -> Document:
    return _in_every_layer(config, mistral(config))


def deepseek(config: Config) -> Document:
    """V2 and V3 (and Kimi K2). `transformers` does not train their multi-token prediction."""
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
        what = "the layers of multi-token prediction are left out, as transformers does"
        config.notes.append(f"{config.place}: {what}; set model.mtp to have them")
    return fields


def _behind_dense(config: Config) -> list[bool]:
    layers, dense = config.layers(), config("first_k_dense_replace", 0)
    return [layer >= dense for layer in range(layers)]


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
    """Chunks and positions in three of four layers, experts in all or in every second one."""
    types = layer_types(config, count := config.layers())
    step = config.positive("interleave_moe_layer_step", 1)
    usual = [layer for layer in range(count) if (layer + 1) % step == 0]
    sparse = set(config.some("moe_layers", count) or usual)
    bare = {"positions": "none", "qk_norm": "none"}
    chunk = config("attention_chunk_size", 0)
    own = [bare if none else {"chunk": chunk} if chunk else {} for none in unrotated(config)]
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
    return laid_out(shape, list(zip(kinds, own, strict=True)), experts=experts)
