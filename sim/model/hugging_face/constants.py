"""Constants in a config that change a model's numbers alone, for the framework that trains it."""

from collections.abc import Mapping
from typing import Any

from sim.model.hugging_face.config import Config, Document

# By what they are called in configs of one type or another.
_NAMES = {
    "rope_theta": ("rope_theta", "rotary_emb_base"),
    "rotary_share": ("partial_rotary_factor", "rotary_pct"),
    "norm_epsilon": ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon",
                     "layernorm_epsilon", "norm_eps"),
}  # fmt: skip


def numerics(config: Config) -> Document:
    """The keys of `sim.model.model` that a config has; those of rotary positions may stand in a
    table of their own (`rope_parameters`, transformers 5)."""
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
