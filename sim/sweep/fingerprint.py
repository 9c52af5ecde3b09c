"""The key under which an answer is stored: a hash of everything that could change it."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import sim
from sim.config import catalog
from sim.sweep.points import Point

_NAMED = {"model": "models", "topology": "topologies", "stack": "topologies/stacks"}
_DEVICES = "topologies/devices"
_ALWAYS = ("topologies/backends", "topologies/profiles", "topologies/validated")


def key(scenario: str, point: Point, extra: tuple[Any, ...] = ()) -> str:
    """The hash of a scenario at a point: both, every file that they name, program version.

    The *content* of files counts, not their names: after a change of a model, topology, device,
    stack, backend, profile, of measured errors or of the program itself an old answer is not found.
    """
    path = catalog.find("scenarios", scenario)
    named = {name: str(point.get(name, _document(path).get(name, ""))) for name in _NAMED}
    if not named["stack"]:
        named["stack"] = "megatron-core"
    parts = [program_version(), _text(path), json.dumps([dict(point), extra], sort_keys=True)]
    parts += [_named_file(_NAMED[kind], name) for kind, name in named.items()]
    device = _device_of(path, point)
    parts += [_named_file(_DEVICES, device) if device else _device(named["topology"])]
    parts += [_mentioned(path), *(_folder(folder) for folder in _ALWAYS)]
    return _digest(parts)


@cache
def program_version() -> str:
    """A hash of the package's source and of what it computes with."""
    root = Path(sim.__file__).parent
    files = sorted(root.rglob("*.py"))
    texts = [f"{path.relative_to(root)}\n{path.read_text(encoding='utf-8')}" for path in files]
    return _digest([*texts, *(version(name) for name in ("numpy", "simpy"))])


def forget() -> None:
    """Read files again: a sweep looks at each of them once."""
    for cached in (_text, _document, _named_file, _device, _mentioned, _folder):
        cached.cache_clear()


@cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def _document(path: Path) -> dict[str, Any]:
    return catalog.read(path)


@cache
def _named_file(folder: str, name: str) -> str:
    lineage = catalog.lineage(folder, catalog.find(folder, name))
    return _digest(_text(path) for path in lineage)


@cache
def _device(topology: str) -> str:
    path = catalog.find("topologies", topology)
    device = catalog.document("topologies", path).get("device", "")
    return _named_file(_DEVICES, device) if isinstance(device, str) else ""


def _device_of(path: Path, point: Point) -> str:
    """A device that stands in for the topology's own."""
    change = _document(path).get("change", {})
    within = change.get("topology", {}).get("device") if isinstance(change, dict) else None
    device = point.get("topology.device", within)
    return device if isinstance(device, str) else ""


@cache
def _mentioned(path: Path) -> str:
    """The files that a scenario mentions anywhere, such as a trace of slow ranks."""
    texts = [text for text in _strings(_document(path)) if len(text) < 256 and "\0" not in text]
    places = [place for text in texts for place in (Path(text), path.parent / text)]
    return _digest(hashlib.sha256(p.read_bytes()).hexdigest() for p in places if p.is_file())


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner)


@cache
def _folder(folder: str) -> str:
    """All files of a folder that a run may read without naming them."""
    return _digest(_named_file(folder, name) for name in catalog.names(folder))


def _digest(parts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)}:".encode())
        digest.update(part.encode())
    return digest.hexdigest()
