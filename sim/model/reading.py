"""The models that the files of `models/` describe, whatever kind they are of."""

import re
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from sim.config import catalog
from sim.config.errors import InputError
from sim.model.model import Model

_TRANSFORMER = "sim.model.transformer:Transformer"
_SOURCES = {  # loaded where a model is of them
    "convolutional": "sim.model.convolution:Convolutional",
    "profiled": "sim.model.profiled:Profiled",
    "recommendation": "sim.model.recommendation:Recommendation",
}


def model_of(document: dict[str, Any], place: str) -> Model:
    """A transformer, or the network that the document's `kind` says. Raises `InputError`."""
    kind = str(document.get("kind"))
    module, _, name = _SOURCES.get(kind, _TRANSFORMER).partition(":")
    source: Any = catalog.validate(document, getattr(import_module(module), name), place)
    if kind in _SOURCES:
        network = import_module("sim.model.network").network
        try:
            source = network(source, document.get("name", ""))
        except ValueError as error:
            raise InputError.of(place, error) from None
    model: Model = source
    return model


def load(name: str, *, where: str = "command line") -> Model:
    """The model that `models/NAME.toml` describes. Raises `InputError`."""
    path = catalog.find("models", name, where=where)
    return model_of(document(path), catalog.place(path))


def settled(model: Model, keys: Iterable[str]) -> Model:
    """Without its notes on keys (`model.seq`) that have been set since."""
    ours = {f"model.{key}" for key in keys}
    open_ = [note for note in model.notes if not (asked := _asked(note)) or asked - ours]
    return model.changed(notes=tuple(open_))


def _asked(note: str) -> set[str]:
    return set(re.findall(r"\bmodel\.\w+", note))


def document(path: Path) -> dict[str, Any]:
    """The keys of a file of `models/`, or the keys that a checkpoint's config stands for."""
    return catalog.document("models", path, keys_of)


def keys_of(content: dict[str, Any], place: str) -> dict[str, Any]:
    """Our keys of a model's document, which may be the config of a checkpoint. Raises
    `InputError`."""
    if "model_type" in content:
        hugging_face = import_module("sim.model.hugging_face.document")
        return dict(hugging_face.document(content, place))
    if place.endswith(".json"):
        fault = "has no model_type, which every config of Hugging Face has"
        raise InputError(place, fault, "take the config.json of a checkpoint, or write a TOML file")
    return content
