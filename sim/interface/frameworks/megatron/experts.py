"""Megatron-LM's arguments for experts: their sizes, their layout, how tokens reach them."""

import re
from itertools import groupby
from typing import Any

from sim.config.errors import InputError
from sim.interface.frameworks.arguments import (
    Entry,
    Flag,
    Given,
    Keys,
    Together,
    Value,
    integer,
    value_of,
)
from sim.interface.frameworks.megatron.model import ffn

_EXPERTS = {
    "num-experts": "experts",
    "moe-router-topk": "top_k",
    "moe-ffn-hidden-size": "ffn",
    "moe-router-num-groups": "groups",
    "moe-router-group-topk": "limit",
    "moe-shared-expert-intermediate-size": "shared_ffn",
}


def _experts(given: Given) -> dict[str, Any]:
    if "num-experts" not in given:
        return {}
    sizes = {key: integer(given, name) for name, key in _EXPERTS.items() if name in given}
    sizes = {"top_k": 2, "ffn": ffn(given)["model.ffn"]} | sizes
    keys: dict[str, Any] = {f"model.blocks.experts.{key}": value for key, value in sizes.items()}
    if "moe-shared-expert-gate" in given:
        keys["model.blocks.experts.shared_gate"] = True
    return keys | {"model.pattern": _pattern(given)}


def _pattern(given: Given) -> str:
    """Return the layers with experts from `--moe-layer-freq`: N means every Nth layer from the
    first; a list such as [0]*3+[1]*58 has a number for each layer."""
    word = value_of(given, "moe-layer-freq", str) if "moe-layer-freq" in given else "1"
    word = word.strip("\"'() ").replace(" ", "")
    if word.isdigit() and int(word) > 0:
        return "experts" if word == "1" else f"experts, {int(word) - 1} dense"
    runs = re.findall(r"\[([01])\](?:\*(\d+))?", word)
    if "+".join(f"[{kind}]" + (f"*{often}" if often else "") for kind, often in runs) != word:
        fault = f"{word!r} is not known"
        raise InputError(
            "argument moe-layer-freq", fault, "write a number, or a list: ([0]*3+[1]*58)"
        )
    named = [f"{often or 1} {'experts' if kind == '1' else 'dense'}" for kind, often in runs]
    return ", ".join(named)


def _write_experts(keys: Keys) -> dict[str, tuple[str, ...]]:
    experts, kinds = keys.get("model.blocks", {}).get("experts"), keys["model.kinds"]
    if set(kinds) - {"dense", "experts"}:
        first, *more = sorted(set(kinds) - {"dense", "experts"})
        fault = f"Megatron-LM has no arguments for layers of kind {first}"
        fault += f" and {len(more)} more" * bool(more)
        raise InputError("model", fault, "write them by hand")
    if not experts:
        return {}
    experts = dict(experts)
    experts.setdefault("shared_ffn", experts.get("shared", 0) * experts["ffn"])
    words: dict[str, tuple[str, ...]] = {
        name: (str(experts[key]),) for name, key in _EXPERTS.items() if experts.get(key)
    }
    if "dense" in kinds:
        runs = ((kind, len(list(alike))) for kind, alike in groupby(kinds))
        text = "+".join(f"[{int(kind == 'experts')}]*{often}" for kind, often in runs)
        words["moe-layer-freq"] = (f"({text})",)
    return words


def _etp(given: Given) -> dict[str, Any]:
    """Return the experts' tensor-parallel degree; default: the degree of other layers
    (arguments.py, validate_args)."""
    if "num-experts" not in given:
        return {}
    usual = integer(given, "tensor-model-parallel-size", 1)
    return {"plan.etp": integer(given, "expert-tensor-parallel-size", usual)}


def _write_etp(keys: Keys) -> dict[str, tuple[str, ...]]:
    etp, usual = keys.get("plan.etp", 1), keys.get("plan.tp", 1)
    if etp == usual or not keys.get("model.blocks", {}).get("experts"):
        return {}
    return {"expert-tensor-parallel-size": (str(etp),)}


def _dispatcher(given: Given) -> dict[str, Any]:
    """Return the dispatcher. The flexible dispatcher is DeepEP or HybridEP (core/transformer/moe/
    token_dispatcher.py, MoEFlexTokenDispatcher); other dispatchers ignore the backend's name."""
    if "moe-enable-deepep" in given:
        return {"plan.dispatcher": "deepep"}
    if given.get("moe-token-dispatcher-type") != ("flex",):
        return {}
    hybrid = given.get("moe-flex-dispatcher-backend") == ("hybridep",)
    return {"plan.dispatcher": "hierarchical" if hybrid else "deepep"}


_GROUPED: dict[str, tuple[str, ...]] = {"moe-grouped-gemm": ()}  # as the stack computes experts


def _write_dispatcher(keys: Keys) -> dict[str, tuple[str, ...]]:
    if not keys.get("model.blocks", {}).get("experts"):
        return {}
    if keys.get("plan.dispatcher") == "deepep":
        return {"moe-token-dispatcher-type": ("flex",), "moe-enable-deepep": (), **_GROUPED}
    if keys.get("plan.dispatcher") == "hierarchical":
        backend = {"moe-flex-dispatcher-backend": ("hybridep",)}
        return {"moe-token-dispatcher-type": ("flex",), **backend, **_GROUPED}
    return {"moe-token-dispatcher-type": ("alltoall",), **_GROUPED}


EXPERTS: tuple[Entry, ...] = (
    Together((*_EXPERTS, "moe-layer-freq", "moe-shared-expert-gate"), _experts, _write_experts),
    Value("expert-model-parallel-size", "plan.ep", default=1),
    Together(("expert-tensor-parallel-size",), _etp, _write_etp),
    Flag("overlap-moe-expert-parallel-comm", "plan.overlap_experts", off=None),
    Flag("moe-shared-expert-overlap", "plan.overlap_shared", off=None),
    Together(
        (*("moe-token-dispatcher-type", "moe-enable-deepep", "moe-flex-dispatcher-backend"),),
        _dispatcher,
        _write_dispatcher,
    ),
)
