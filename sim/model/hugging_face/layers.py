"""Layers that are not all alike: which have a window, which have experts."""

from collections.abc import Sequence
from itertools import groupby

from sim.config.errors import InputError
from sim.model.hugging_face.config import Config, Document


def in_turn(
    config: Config,
    shape: Document,
    *,
    period: int = 0,
    slides_from: int | None = None,
    experts: Document | None = None,
    sparse: Sequence[bool] = (),
) -> Document:
    """A model whose layers see a window or all of the sequence, and have experts or not.

    `layer_types` of the config says which slide; else all but each `period`-th, or those from
    `slides_from` on. Where all slide, the window is the model's own.
    """
    count, window = shape["layers"], config("sliding_window", 0)
    types = config("layer_types", None)
    if types is not None:
        _check_types(config, types, count)
        slides = [kind == "sliding_attention" for kind in types]
    elif period:
        slides = [(layer + 1) % period != 0 for layer in range(count)]
    else:
        slides = [slides_from is not None and layer >= slides_from for layer in range(count)]
    kinds = ["experts" if each else "dense" for each in (sparse or [False] * count)]
    blocks: Document = {"experts": dict(experts)} if experts and any(sparse) else {}
    if any(slides) and window:
        for kind in dict.fromkeys(one for one, own in zip(kinds, slides, strict=True) if own):
            blocks[f"sliding_{kind}"] = {"kind": kind, "window": window}
        names = zip(kinds, slides, strict=True)
        kinds = [f"sliding_{kind}" if own else kind for kind, own in names]
    family = {"family": "moe"} if "experts" in blocks else {}
    return shape | family | {"pattern": pattern(kinds), "blocks": blocks}


def _check_types(config: Config, types: Sequence[str], count: int) -> None:
    if len(types) != count:
        what = f"layer_types names {len(types)} layers of {count}"
        raise InputError(config.place, what, "name each layer once")
    if unknown := set(types) - {"sliding_attention", "full_attention"}:
        what = f"layer_types: {min(unknown)!r} is not modelled"
        raise InputError(config.place, what, "known: sliding_attention, full_attention")


def pattern(kinds: Sequence[str]) -> str:
    """Kinds of layers as a model's `pattern`: the shortest period, equal neighbours counted.

    >>> pattern(["a", "b", "b", "a", "b", "b"])
    'a, 2 b'
    """
    count = len(kinds)
    length = next(p for p in range(1, count + 1) if all(
        kinds[i] == kinds[i % p] for i in range(count)))  # fmt: skip
    runs = ((kind, len(list(alike))) for kind, alike in groupby(kinds[:length]))
    return ", ".join(kind if often == 1 else f"{often} {kind}" for kind, often in runs)
