"""Models of every kind, read from the files of `models/`."""

import re
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from sim.config import catalog
from sim.config.errors import InputError
from sim.model.model import Model

_TRANSFORMER = "sim.model.transformer:Transformer"
_SOURCES = {  # modules of other kinds, loaded only for a model of the kind
    "convolutional": "sim.model.convolution:Convolutional",
    "profiled": "sim.model.profiled:Profiled",
    "recommendation": "sim.model.recommendation:Recommendation",
}


def model_of(document: dict[str, Any], place: str) -> Model:
    """Return the model of the document's `kind`, by default a transformer. Raises `InputError`."""
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
    """Return the model that `models/NAME.toml` describes. Raises `InputError`."""
    path = catalog.find("models", name, where=where)
    return model_of(document(path), catalog.place(path))


def settled(model: Model, keys: Iterable[str]) -> Model:
    """Return the model without answered notes: a note that asks the user to set keys (such as
    `model.seq`) is answered if `keys` has all of them."""
    ours = {f"model.{key}" for key in keys}
    open_ = [note for note in model.notes if not (asked := _asked(note)) or asked - ours]
    return model.changed(notes=tuple(open_))


def _asked(note: str) -> set[str]:
    return set(re.findall(r"\bmodel\.\w+", note))


def document(path: Path) -> dict[str, Any]:
    """Return the keys of a file of `models/`, translated if it is a checkpoint's config."""
    return catalog.document("models", path, keys_of)


def keys_of(content: dict[str, Any], place: str) -> dict[str, Any]:
    """Return a model's document in our keys, translated if it is the config of a checkpoint. Raises
    `InputError`."""
    if "model_type" in content:
        hugging_face = import_module("sim.model.hugging_face.document")
        return dict(hugging_face.document(content, place))
    if place.endswith(".json"):
        fault = "has no model_type, which every config of Hugging Face has"
        raise InputError(place, fault, "take the config.json of a checkpoint, or write a TOML file")
    return content
