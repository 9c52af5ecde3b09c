"""The model of one row of a measurement table, whose README explains the columns."""

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import takewhile
from typing import Any, cast

from sim.config import catalog, gate
from sim.config.errors import InputError
from sim.model.reading import load
from sim.model.transformer import AttentionKernel, Family, Latent, Transformer

# Features of a family's published training code that the tables do not print as columns.
_LLAMA = {"positions": "rotary", "normalisation": "rmsnorm", "bias": False, "dropout": False}
_FAMILIES: dict[str, dict[str, Any]] = {
    # Megatron-LM, megatron/model/language_model.py: learned positions, dropout 0.1, biases.
    "gpt": {},
    # nanotron, torchtitan, Megatron-LM's llama recipes: no biases, no dropout.
    "llama": _LLAMA,
    # Mixtral, DeepSeek, Qwen: Llama's layers with experts.
    "moe": _LLAMA,
    # Nemotron: the model's file describes everything.
    "hybrid": {},
    # llm-foundry scripts/train/benchmarking: learned_pos_emb, no dropout. The parameter counts in
    # its README show biases (7b: 13 h a layer and 2 h beside its matrices).
    "mpt": {"dropout": False},
    # Devlin et al. 2019: post-norm encoder, two segments, next-sentence prediction.
    "bert": {"causal": False, "post_norm": True, "token_types": 2, "pooler": True},
}

_SIZES = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "seq")
_EXPERTS = {
    "experts": "experts", "top_k": "top_k", "expert_ffn": "ffn", "shared_experts": "shared"
}  # fmt: skip
# Drop and pad gives each expert as many tokens as an even load does (Megatron-LM,
# moe_expert_capacity_factor = 1.0 with moe_pad_expert_input_to_capacity).
_EVEN = 1.0
# Keys that a run may change from the model's file: depth, length, padding, kernels.
_CHOSEN = ("layers", "seq", "vocab", "attention", "mtp", "documents")


def from_columns(row: Mapping[str, Any]) -> Transformer:
    """Return the model of a row. Raises `InputError` for an unknown family or impossible shape.

    If `model` names a file of models/, that file gives the keys without a column (windows, norms of
    heads, groups of experts). The other columns must agree with the file. Values may be texts, as
    the csv module reads them.

    >>> row = dict(id="a", family="llama", layers="2", hidden="64", heads="4", kv_heads="2",
    ...            ffn="128", vocab="100", seq="32", gated_mlp="true", tied_embeddings="false",
    ...            experts="", attention="flash")
    >>> from_columns(row).kv_width
    32
    """
    where = str(row.get("id", "table row"))
    family = str(row["family"])
    if family not in _FAMILIES:
        known = ", ".join(_FAMILIES)
        raise InputError(where, f"unknown family {family!r}", f"known families: {known}")
    try:
        shape, experts = _shape(row), _experts(row)
        if (published := _published(row)) is not None:
            model = _agreeing(published, shape, experts)
        else:
            model = _described(family, shape, experts, row)
        model = _in_front(model, row)
        if "experts" in model.blocks:  # the columns of routing say nothing of dense layers
            model = _routed(model, row.get("routing"))
            model = _dropping(model, row.get("moe_tokens"))
        return replace(model, name=where)
    except ValueError as error:
        raise InputError.of(where, error) from None


def filled(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row whose empty columns of shape are filled from the model that the row names, if
    `models/` has that model."""
    if not blank(row.get("layers")) or (model := _published(row)) is None:
        return dict(row)
    shape = {key: getattr(model, key) for key in (*_SIZES, "gated_mlp", "tied_embeddings")}
    return {**row, **{key: value for key, value in shape.items() if blank(row.get(key))}}


def masked_predictions(seq: int) -> int:
    """Return BERT's masked tokens per sequence, `max_predictions_per_seq`: 20 at 128, 80 at 512.
    Both are from NVIDIA DeepLearningExamples, PyTorch/LanguageModeling/BERT/README; at other
    lengths 15 % are masked."""
    return {128: 20, 512: 80}.get(seq, max(1, round(0.15 * seq)))


def _shape(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a model's shape that the columns give."""
    shape: dict[str, Any] = {key: whole(row, key) for key in _SIZES}
    shape |= {key: true(row[key]) for key in ("gated_mlp", "tied_embeddings")}
    shape["attention"] = _attention(row.get("attention"))
    shape["mtp"] = 0 if blank(row.get("mtp")) else whole(row, "mtp")
    if not blank(row.get("head_dim")):
        shape["head"] = whole(row, "head_dim")
    if not blank(row.get("documents")):
        shape["documents"] = whole(row, "documents")
    return shape | _latent(row.get("mla"))


def _latent(cell: Any) -> dict[str, Any]:
    """Return the keys of latent attention from a cell like "q1536 kv512 nope128 rope64 v128"."""
    if blank(cell):
        return {}
    sizes = {name: int(size) for name, size in re.findall(r"([a-z]+)(\d+)", str(cell))}
    if not {"kv", "nope", "rope", "v"} <= sizes.keys() <= {"q", "kv", "nope", "rope", "v"}:
        raise ValueError(f"mla = {cell!r}; write it like 'q1536 kv512 nope128 rope64 v128'")
    latent = Latent(query=sizes.get("q", 0), kv=sizes["kv"], rotary=sizes["rope"])
    return {"head": sizes["nope"] + sizes["rope"], "value_head": sizes["v"], "latent": latent}


def _experts(row: Mapping[str, Any]) -> dict[str, int]:
    """Return the keys of a layer with experts that the columns give."""
    if blank(row.get("experts")):
        return {}
    given = {column: key for column, key in _EXPERTS.items() if not blank(row.get(column))}
    return {key: whole(row, column) for column, key in given.items()}


def _published(row: Mapping[str, Any]) -> Transformer | None:
    name = row.get("model")
    if blank(name) or not catalog.has("models", str(name)):
        return None
    model = load(str(name))
    return model if isinstance(model, Transformer) else None


def _agreeing(
    model: Transformer, shape: Mapping[str, Any], experts: Mapping[str, int]
) -> Transformer:
    """Return the published model with the keys of `_CHOSEN` from the row. Raises `ValueError` where
    another column contradicts the model's file."""
    entry = model.entry("experts")
    given = {key: (value, getattr(model, key)) for key, value in shape.items()}
    given |= {f"experts.{key}": (value, entry.get(key, 0)) for key, value in experts.items()}
    for key, (value, published) in given.items():
        if key not in _CHOSEN and value != published:
            fault = f"{key} = {value}, but the file of its model says {published}"
            raise ValueError(f"{fault}; correct the row, or leave its model empty")
    return replace(model, **{key: shape[key] for key in _CHOSEN if key in shape})


def _described(
    family: str, shape: Mapping[str, Any], experts: Mapping[str, int], row: Mapping[str, Any]
) -> Transformer:
    """Return a model that only its columns and its family describe."""
    if not blank(window := row.get("sliding_window")):
        fault = f"sliding_window = {window!r}: no column says in which layers"
        raise ValueError(f"{fault}; describe the model in models/ and name it")
    traits = dict(_FAMILIES[family])
    if family == "bert":
        traits["predictions"] = masked_predictions(int(shape["seq"]))
    if family == "moe" and not experts:
        raise ValueError("family = moe without experts; fill in experts, top_k and expert_ffn")
    if experts:
        traits |= {"pattern": "experts", "blocks": {"experts": experts}}
    return Transformer(family=cast(Family, family), **traits, **shape)


def _in_front(model: Transformer, row: Mapping[str, Any]) -> Transformer:
    """Return the model with the number of dense layers that a row puts in front of the others."""
    if blank(row.get("dense_layers")):
        return model
    dense = whole(row, "dense_layers")
    if dense == len(list(takewhile("dense".__eq__, model.kinds))):
        return model
    if not 0 <= dense < model.layers:
        fault = f"dense_layers = {dense} of {model.layers} layers leaves none with experts"
        raise ValueError(f"{fault}; lower dense_layers")
    kind = model.kinds[-1]
    return replace(
        model, pattern=f"{dense} dense, {model.layers - dense} {kind}" if dense else kind
    )


def _dropping(model: Transformer, cell: Any) -> Transformer:
    """Return the model, with experts that drop tokens beyond an even load if the row says so."""
    if blank(cell) or (not str(cell).startswith("drop ") and cell != "drop"):
        return model
    return _with_experts(model, capacity=_EVEN)


def _routed(model: Transformer, cell: Any) -> Transformer:
    """Return the model, with the law by which its tokens are routed if the row names a law."""
    return model if blank(cell) else _with_experts(model, routing={"law": str(cell)})


def _with_experts(model: Transformer, **settings: Any) -> Transformer:
    blocks = {**model.blocks, "experts": {**model.blocks["experts"], **settings}}
    return replace(model, blocks=blocks)


def _attention(value: Any) -> AttentionKernel:
    """Return the attention kernel that a cell names; an empty cell means "flash". Raises
    `ValueError` for other words."""
    text = "flash" if blank(value) else str(value).strip()
    if text == "standard":
        return "standard"
    if text != "flash":
        raise ValueError(f"attention = {text!r} is neither 'standard' nor 'flash'; write either")
    return "flash"


def true(value: Any) -> bool:
    """Whether a cell says "true"; an empty cell means false. Raises `ValueError` for other text."""
    text = "false" if blank(value) else str(value).strip().lower()
    if text not in ("true", "false"):
        raise ValueError(f"{value!r} is neither true nor false; write either")
    return text == "true"


def whole(row: Mapping[str, Any], column: str) -> int:
    """Return the whole number in a cell. Raises `ValueError` for anything else."""
    try:
        number = float(row[column])
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if gate.fault_of(number) or number < 0 or not number.is_integer():
        fault = f"{column} = {gate.shown(row[column])} is not a whole number"
        raise ValueError(f"{fault}; correct the cell")
    return int(number)


def blank(value: Any) -> bool:
    """Whether a cell is empty: None, blank text, or pandas' NaN, which differs from itself."""
    return value is None or value != value or str(value).strip() == ""
