"""The kinds of blocks, and the variants of them that a model describes.

A kind is a module of `sim.model.blocks` that offers `operators(run)` and, where it has keys of its
own, a dataclass of them as `SETTINGS`. `blocks.NAME` of a model's file gives these keys; it may
also change keys of the model's shape for the layers of its kind.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from types import ModuleType
from typing import Any

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.plugins import modules, remembered
from sim.config.schema import validate
from sim.model.execution import Execution
from sim.model.model import Model

FOLDER = "sim.model.blocks"

# Keys of the embedding, the head and the row as a whole, which no layer can have for itself.
_SHARED = (
    *("name", "family", "layers", "hidden", "vocab", "seq", "decoder_seq", "tied_embeddings"),
    *(
        "token_types",
        "position_buckets",
        "predictions",
        "pooler",
        "mtp",
        "position_rows",
        "pattern",
        "blocks",
        "numerics",
        "notes",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An entry's own keys: its kind, and whether its layers differ by their number."""

    kind: str
    numbered: bool = False


@remembered(FOLDER)
def kinds() -> Mapping[str, ModuleType]:
    """Return the module of every kind of block by the kind's name."""
    return modules(FOLDER)


def is_layer(kind: str) -> bool:
    """Whether a kind is one of the layers between embedding and head, as all variants are."""
    return bool(getattr(kinds().get(kind), "LAYER", True))


def check_layers(model: Model) -> None:
    """Raise `InputError` for layers of an unknown kind, and for `blocks` entries that are wrong or
    that no layer uses."""
    where = _where(model)
    layers = dict.fromkeys(name.partition(":")[0] for name in model.kinds)
    kinds_of_entries = {entry.get("kind") for entry in model.blocks.values()}
    for name in model.blocks:
        if is_layer(name) and name not in {*layers, *kinds_of_entries}:
            fault = f"blocks.{name} is used by no layer"
            named = name if model.pattern == "dense" else f"{model.pattern}, {name}"
            raise InputError(where, fault, f'name it in pattern, as in pattern = "{named}"')
    for name in (*layers, *model.blocks):
        kind = model.entry(name)["kind"]
        if is_layer(kind) and not is_layer(name):
            raise InputError(where, f"blocks.{name} cannot be a layer", "rename it")
        if name in layers and not is_layer(kind):
            known = [other for other in kinds() if is_layer(other)]
            fault = f"pattern: {name!r} is no layer between embedding and head"
            raise InputError.unknown(where, fault, kind, known)
    for name in dict.fromkeys(model.row):
        _variant(name, model)


def specialised(kind: str, run: Execution) -> tuple[ModuleType, Execution]:
    """Return a kind's module, and the run with the settings of its entry. Raises `InputError`."""
    name, _, number = kind.partition(":")
    module, model, settings = _variant(name, run.model)
    if model == run.model and settings is None and not number:
        return module, run
    return module, replace(run, model=model, block=settings, layer=int(number) if number else None)


def settings_of(model: Model) -> Iterator[Any]:
    """Yield the settings of each kind of a model's blocks, None for a kind without settings."""
    for name in dict.fromkeys(model.row):
        _, _, settings = _variant(name, model)
        yield settings


def experts_of(model: Model) -> list[Any]:
    """Return the settings of each kind of layer with experts in a model."""
    return [settings for settings in settings_of(model) if getattr(settings, "experts", 0)]


@remembered(FOLDER)
def _variant(name: str, model: Model) -> tuple[ModuleType, Model, Any]:
    """Return the module of a block, the model with the keys of the block's entry, and the settings
    of its kind."""
    name = name.partition(":")[0]
    entry = model.entry(name)
    module, where = _module(entry["kind"]), f"{_where(model)}, blocks.{name}"
    settings = getattr(module, "SETTINGS", None)
    names, of_entry = _names(settings), _names(Entry)
    for key in entry:
        if key not in (known := (*names, *of_entry, *_of_a_layer(model))):
            raise InputError.unknown(where, f"unknown key {key!r}", key, known)
    validate({key: entry[key] for key in entry if key in of_entry}, Entry, where)
    if settings:
        settings = validate({key: entry[key] for key in entry if key in names}, settings, where)
    if shape := {key: entry[key] for key in entry if key not in names + of_entry}:
        values = {key: value for key in _names(model) if (value := getattr(model, key)) is not None}
        model = validate(values | shape, type(model), where)
    return module, model, settings


def _of_a_layer(model: Model) -> tuple[str, ...]:
    return tuple(name for name in _names(model) if name not in _SHARED)


def _names(shape: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(shape)) if shape else ()


def _module(kind: str) -> ModuleType:
    if kind in (known := kinds()):
        return known[kind]
    fault = f"no kind of block is named {kind!r}, not even in SIM_PLUGINS"
    raise InputError.unknown("model", fault, kind, list(known))


def _where(model: Model) -> str:
    return f"model {model.name}".rstrip()
