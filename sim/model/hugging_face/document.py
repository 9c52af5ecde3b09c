"""A model as the `config.json` of a Hugging Face checkpoint describes it.

Each `model_type` has a function from its config to the keys of `models/NAME.toml`. Keys of configs
and their defaults are as in `transformers` 5.24 (src/transformers/models/*/configuration_*.py). A
test builds every type with `transformers` on the meta device; the parameters agree exactly.

Constants that change a model's results but not its time are handed to the framework that trains it.
"""

from collections.abc import Callable, Mapping
from typing import Any

from sim.config.errors import InputError
from sim.model.hugging_face import encoders, experts, gpt, llama, states
from sim.model.hugging_face.config import Config, Document
from sim.model.hugging_face.keys import translated

# The keys of `sim`, and their names in configs of different types.
_NAMES = {
    "rope_theta": ("rope_theta", "rotary_emb_base"),
    "rotary_share": ("partial_rotary_factor", "rotary_pct"),
    "norm_epsilon": ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon",
                     "layernorm_epsilon", "norm_eps"),
}  # fmt: skip


def numerics(config: Config) -> Document:
    """Return the numeric constants of a config. Keys of rotary positions may be in a separate table
    (`rope_parameters`, transformers 5)."""
    table = _table(config, "rope_parameters")
    content = {**config.content, **table}
    found: Document = {}
    for key, names in _NAMES.items():
        value = next((content[name] for name in names if _is_positive(content.get(name))), None)
        if value is not None:
            found[key] = float(value)
    scaling = _table(config, "rope_scaling") or table
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "llama3" and _is_positive(scaling.get("factor")):
        found["rope_llama3"] = float(scaling["factor"])
    elif kind != "default":
        found["rope_scaling"] = {
            key: factor for key, factor in scaling.items() if key != "rope_theta"
        }
    return found


def _table(config: Config, key: str) -> Mapping[str, Any]:
    value = config.content.get(key)
    return value if isinstance(value, Mapping) else {}


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


_TYPES: dict[str, Callable[[Config], Document]] = {
    "llama": llama.llama,
    "mistral": llama.mistral,
    "ministral": llama.mistral,
    **dict.fromkeys(("internlm2", "internlm3", "exaone"), llama.llama),
    "hunyuan_v1_dense": llama.hunyuan,
    "apertus": llama.apertus,
    "qwen2": llama.qwen2,
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl"), llama.qwen2),  # older configs have no text_config
    "qwen2_vl_text": llama.qwen2,
    "qwen2_5_vl_text": llama.qwen2,
    "qwen3": llama.qwen3,
    "qwen3_vl_text": llama.qwen3,
    "qwen2_moe": experts.qwen2_moe,
    "qwen3_moe": experts.qwen3_moe,
    "qwen3_vl_moe_text": experts.qwen3_moe,
    "mixtral": experts.mixtral,
    "minimax_m2": experts.minimax_m2,
    "phimoe": experts.phimoe,
    "dbrx": experts.dbrx,
    "deepseek_v2": experts.deepseek,
    "deepseek_v3": experts.deepseek,
    "kimi_k2": experts.deepseek,
    "glm": llama.glm,
    "glm4": llama.glm4,
    "glm4_moe": experts.glm4_moe,
    "dots1": experts.dots1,
    "ernie4_5_moe": experts.ernie_moe,
    "hunyuan_v1_moe": experts.hunyuan_moe,
    "glm4v_moe_text": experts.glm4_moe,
    "gpt_oss": experts.gpt_oss,
    "llama4_text": experts.llama4,
    "gemma": llama.gemma,
    "gemma2": llama.gemma2,
    "gemma3_text": llama.gemma3,
    "phi": gpt.phi,
    "phi3": llama.phi3,
    "granite": llama.granite,
    "granitemoe": experts.granite_moe,
    "olmo": llama.olmo,
    "olmo2": llama.olmo2,
    "olmo3": llama.olmo2,
    "olmoe": experts.olmoe,
    "cohere": gpt.cohere,
    "cohere2": gpt.cohere2,
    "exaone4": llama.exaone4,
    "smollm3": llama.smollm3,
    "seed_oss": llama.seed_oss,
    "ernie4_5": llama.ernie,
    "arcee": llama.arcee,
    "nemotron": gpt.nemotron,
    "stablelm": gpt.stablelm,
    "starcoder2": gpt.starcoder2,
    "falcon": gpt.falcon,
    "mpt": gpt.mpt,
    "gpt2": gpt.gpt2,
    "gptj": gpt.gptj,
    "gpt_bigcode": gpt.gpt2,
    "gpt_neo": gpt.gpt_neo,
    "bloom": gpt.bloom,
    "gpt_neox": gpt.gpt_neox,
    "opt": gpt.opt,
    "mamba": states.mamba,
    "mamba2": states.mamba2,
    "jamba": states.jamba,
    "bamba": states.bamba,
    "falcon_h1": states.falcon_h1,
    "minimax": states.minimax,
    "nemotron_h": states.nemotron_h,
    "granitemoehybrid": states.granite_hybrid,
    "qwen3_next": states.qwen3_next,
    "qwen3_5_text": states.qwen3_5,
    "qwen3_5_moe_text": states.qwen3_5_moe,
    "bert": encoders.bert,
    **dict.fromkeys(("roberta", "xlm-roberta", "camembert"), encoders.roberta),
    "modernbert": encoders.modernbert,
    "t5": encoders.t5,
    "mt5": encoders.t5,
    "vit": encoders.vit,
    "whisper": encoders.whisper,
    **dict.fromkeys(("wav2vec2", "hubert"), encoders.wav2vec2),
}
# Known types that need a feature which no block has.
_REFUSED = {
    "falcon_mamba": "a Mamba with norms of its own",
    **dict.fromkeys(("rwkv", "recurrent_gemma"), "recurrences of a kind of their own"),
    **dict.fromkeys(("zamba", "zamba2"), "an attention layer whose weights several layers share"),
    **dict.fromkeys(("lfm2", "lfm2_moe"), "gated convolutions in place of attention"),
    "kimi_linear": "linear attention of another rule than gated delta nets",
    **dict.fromkeys(
        ("gemma3n", "gemma3n_text"), "embeddings in each layer, and alternating updates"
    ),
    **dict.fromkeys(("gemma4", "gemma4_text"), "embeddings in each layer, and shared keys"),
    **dict.fromkeys(("mllama", "mllama_text_model"), "attention to images in some layers"),
    **dict.fromkeys(("deepseek_v32", "glm_moe_dsa"), "attention to keys that an indexer chooses"),
    "longcat_flash": "experts that compute nothing, and two attentions a layer",
    "hunyuan": "keys and values that layers share",
    "umt5": "relative positions of its own in each layer",
    "switch_transformers": "experts in an encoder and a decoder",
    **dict.fromkeys(("bart", "mbart", "pegasus", "marian"), "a decoder with norms after its parts"),
    "wavlm": "gated biases of relative positions",
    **dict.fromkeys(("deberta", "deberta-v2"), "attention to positions in separate scores"),
}
_WRAPPED = {"gemma3": "gemma3_text"}  # for older configs without the type of their text_config


def is_config(document: Mapping[str, Any]) -> bool:
    return "model_type" in document


def document(content: Mapping[str, Any], place: str) -> Document:
    """Return the model that a config describes, in the keys of a file of `models/`.

    The key `notes` names the parts that are left out. Raises `InputError` for an unknown type or
    variant of a model.

    >>> gpt2 = dict(model_type="gpt2", n_embd=768, n_layer=12, n_head=12, n_positions=1024,
    ...             vocab_size=50257)
    >>> [document(gpt2, "config.json")[key] for key in ("hidden", "ffn", "tied_embeddings")]
    [768, 3072, True]
    """
    kind = str(content.get("model_type"))
    if kind in _REFUSED:
        fault = f"model_type = {kind!r} has {_REFUSED[kind]}, which is not modelled"
        raise InputError(place, fault, "describe a model like it in a TOML file")
    if kind in _WRAPPED or "text_config" in content:
        return _inner(content, kind, place)
    if kind not in _TYPES:
        raise InputError.unknown(place, f"model_type = {kind!r} is not known", kind, [*_TYPES])
    translation, absent = translated(content, kind)
    config = Config(translation, place)
    if absent:
        config.notes.append(f"{place}: keys that transformers fills in: {', '.join(absent)}")
    described = _TYPES[kind](config)
    said = {"numerics": constants} if (constants := numerics(config)) else {}
    return described | said | {"notes": [*config.notes, *config.unread()]}


def _inner(content: Mapping[str, Any], kind: str, place: str) -> Document:
    """Return the language model inside a model that also takes images or sound."""
    inner = content.get("text_config")
    if not isinstance(inner, Mapping):
        raise InputError(place, f"{kind} without text_config", "take the whole config.json")
    usual = {"model_type": _WRAPPED[kind]} if kind in _WRAPPED else {}
    tied = {key: content[key] for key in ("tie_word_embeddings",) if key in content}
    described = document({**usual, **inner, **tied}, place)
    note = f"{place}: only the language model of {kind} is simulated, without images or sound"
    return described | {"notes": [*described["notes"], note]}
