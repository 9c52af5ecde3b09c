"""Layers that differ: which layers have a window, which layers have experts."""

from collections.abc import Sequence
from itertools import groupby

from sim.config.errors import InputError
from sim.model.hugging_face.config import Config, Document

_TYPES = ("sliding_attention", "full_attention", "chunked_attention")
# The word in front of the name of a variant of a kind, by the key in which the variant differs.
_WORDS = {"window": "sliding", "chunk": "chunked", "positions": "unrotated"}


def in_turn(
    config: Config,
    shape: Document,
    *,
    kind: str = "dense",
    period: int = 0,
    slides_from: int | None = None,
    experts: Document | None = None,
    sparse: Sequence[bool] = (),
    full: Document | None = None,
) -> Document:
    """Return a model whose layers see a window or the whole sequence, and have experts or are of a
    `kind`. Layers that see the whole sequence also have the keys of `full`. `layer_types` of the
    config says which layers have a window. Without it, every `period`-th layer has no window, or
    the layers from `slides_from` on have windows."""
    count, window = shape["layers"], config("sliding_window", 0)
    types = layer_types(config, count)
    if types:
        slides = [name == "sliding_attention" for name in types]
    elif period:
        slides = [(layer + 1) % period != 0 for layer in range(count)]
    else:
        slides = [slides_from is not None and layer >= slides_from for layer in range(count)]
    kinds = ["experts" if each else kind for each in (sparse or [False] * count)]
    settings: Document = {"window": window} if window else {}
    return laid_out(
        shape,
        [(one, settings if each else full or {}) for one, each in zip(kinds, slides, strict=True)],
        experts=experts,
    )


def laid_out(
    shape: Document, layers: Sequence[tuple[str, Document]], *, experts: Document | None = None
) -> Document:
    """Return a model from the kind of each layer and the keys in which the layer differs from the
    model's `shape`."""
    has_experts = bool(experts) and any(kind == "experts" for kind, _ in layers)
    blocks: Document = {**shape.get("blocks", {}), **({"experts": experts} if has_experts else {})}
    names = []
    for kind, changes in layers:
        names.append("_".join([*(word for key, word in _WORDS.items() if key in changes), kind]))
        if changes:
            blocks[names[-1]] = {"kind": kind, **changes}
    family = {"family": "moe"} if has_experts else {}
    return shape | family | {"pattern": pattern(names), "blocks": blocks}


def layer_types(config: Config, count: int) -> Sequence[str]:
    """Return the kind of each layer that the config lists, or nothing. Raises `InputError`."""
    types: Sequence[str] = config.each("layer_types", count)
    if unknown := set(types) - set(_TYPES):
        fault = f"layer_types: {min(map(str, unknown))!r} is not modelled"
        raise InputError(config.place, fault, f"known: {', '.join(_TYPES)}")
    return types


def pattern(kinds: Sequence[str]) -> str:
    """Return the kinds of layers as a `pattern`: the shortest period, neighbours counted.

    >>> pattern(["a", "b", "b", "a", "b", "b"])
    'a, 2 b'
    """
    count = len(kinds)
    length = next(p for p in range(1, count + 1) if all(
        kinds[i] == kinds[i % p] for i in range(count)))  # fmt: skip
    runs = ((kind, len(list(alike))) for kind, alike in groupby(kinds[:length]))
    return ", ".join(kind if often == 1 else f"{often} {kind}" for kind, often in runs)
