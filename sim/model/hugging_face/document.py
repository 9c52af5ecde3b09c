"""A model as the `config.json` of a Hugging Face checkpoint describes it.

Each `model_type` is a function from its config to the keys of `models/NAME.toml`; names of keys and
their defaults are those of `transformers` (src/transformers/models/*/configuration_*.py, 5.23). A
test builds all of them with `transformers` on the meta device: the parameters agree exactly.
"""

from collections.abc import Callable, Mapping
from typing import Any

from sim.config.errors import InputError
from sim.config.schema import nearest
from sim.model.hugging_face.config import Config, Document
from sim.model.hugging_face.encoders import bert, t5, vit
from sim.model.hugging_face.experts import deepseek, gpt_oss, mixtral, qwen2_moe, qwen3_moe
from sim.model.hugging_face.gpt import gpt2, gpt_neox, opt, phi
from sim.model.hugging_face.llama import gemma, gemma2, gemma3, llama, mistral, phi3, qwen2, qwen3

_TYPES: dict[str, Callable[[Config], Document]] = {
    "llama": llama,
    "mistral": mistral,
    "qwen2": qwen2,
    "qwen3": qwen3,
    "qwen2_moe": qwen2_moe,
    "qwen3_moe": qwen3_moe,
    "mixtral": mixtral,
    "deepseek_v2": deepseek,
    "deepseek_v3": deepseek,
    "kimi_k2": deepseek,
    "gpt_oss": gpt_oss,
    "gemma": gemma,
    "gemma2": gemma2,
    "gemma3_text": gemma3,
    "phi": phi,
    "phi3": phi3,
    "gpt2": gpt2,
    "gpt_neox": gpt_neox,
    "opt": opt,
    "bert": bert,
    "t5": t5,
    "mt5": t5,
    "vit": vit,
}
_WRAPPED = {"gemma3": "gemma3_text"}  # language models inside models of images and text


def is_config(document: Mapping[str, Any]) -> bool:
    return "model_type" in document


def document(content: Mapping[str, Any], place: str) -> Document:
    """The model that a config describes, in the keys of a file of `models/`.

    What of it is left out is said in its `notes`. Raises `InputError` for a type of model that is
    not known, or one in a variant that is not.

    >>> gpt2 = dict(model_type="gpt2", n_embd=768, n_layer=12, n_head=12, n_positions=1024,
    ...             vocab_size=50257)
    >>> [document(gpt2, "config.json")[key] for key in ("hidden", "ffn", "tied_embeddings")]
    [768, 3072, True]
    """
    kind = str(content.get("model_type"))
    if kind in _WRAPPED:
        return _inner(content, kind, place)
    if kind not in _TYPES:
        raise InputError(place, f"model_type = {kind!r} is not known", nearest(kind, [*_TYPES]))
    config = Config(content, place)
    described = _TYPES[kind](config)
    return described | {"notes": [*config.notes, *config.unread()]}


def _inner(content: Mapping[str, Any], kind: str, place: str) -> Document:
    """The language model of one that sees images, too."""
    inner = content.get("text_config")
    if not isinstance(inner, Mapping):
        raise InputError(place, f"{kind} without text_config", "take the whole config.json")
    described = document({"model_type": _WRAPPED[kind], **inner}, place)
    note = f"{place}: the vision tower of {kind} is left out"
    return described | {"notes": [*described["notes"], note]}
