"""The models that the files of `models/` describe, whatever kind they are of."""

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from sim.config import catalog
from sim.config.errors import InputError
from sim.model.convolution import Convolutional
from sim.model.hugging_face import document as hugging_face
from sim.model.network import network
from sim.model.profiled import Profiled
from sim.model.recommendation import Recommendation
from sim.model.transformer import Transformer

_NETWORKS: dict[str, Any] = {
    "convolutional": Convolutional,
    "profiled": Profiled,
    "recommendation": Recommendation,
}


def model_of(document: dict[str, Any], place: str) -> Transformer:
    """A transformer, or the network that the document's `kind` says. Raises `InputError`."""
    shape = _NETWORKS.get(str(document.get("kind")))
    if shape is None:
        return catalog.validate(document, Transformer, place)
    source = catalog.validate(document, shape, place)
    try:
        return network(source, document.get("name", ""))
    except ValueError as error:
        raise InputError.of(place, error) from None


def load(name: str, *, where: str = "command line") -> Transformer:
    """The model that `models/NAME.toml` describes. Raises `InputError`."""
    path = catalog.find("models", name, where=where)
    return model_of(document(path), catalog.place(path))


def settled(model: Transformer, keys: Iterable[str]) -> Transformer:
    """Without its notes on keys (`model.seq`) that have been set since."""
    own = {f"model.{key}" for key in keys}
    open_ = [note for note in model.notes if not (asked := _asked(note)) or asked - own]
    return replace(model, notes=tuple(open_))


def _asked(note: str) -> set[str]:
    return set(re.findall(r"\bmodel\.\w+", note))


def document(path: Path) -> dict[str, Any]:
    """The keys of a file of `models/`, or those that the config of a checkpoint stands for."""
    return catalog.document("models", path, _keys)


def _keys(content: dict[str, Any], place: str) -> dict[str, Any]:
    is_config = hugging_face.is_config(content)
    if not is_config and place.endswith(".json"):
        what = "has no model_type, which every config of Hugging Face has"
        raise InputError(place, what, "take the config.json of a checkpoint, or write a TOML file")
    return hugging_face.document(content, place) if is_config else content
