"""The catalog: named TOML files of models, topologies, stacks and scenarios.

A name is looked up in the user's own folder first, then among the packaged files. So
``sim run gpt3-175b-megatron`` works anywhere, and the user's own file wins. Two keys belong to the
catalog. `names = ["nemo-2*"]` lets a file stand for all names that match a pattern. `like = "NAME"`
lets a file state only its differences from another file of its folder.
"""

import fnmatch
import json
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from sim.config import plugins
from sim.config.errors import InputError, UnknownNameError
from sim.config.gate import refuse_unsound
from sim.config.reads import allowed, exists, listed, packaged_root, remembered, text
from sim.config.schema import validate

__all__ = [
    "document",
    "find",
    "has",
    "lineage",
    "load",
    "names",
    "overlaid",
    "packaged_root",
    "place",
    "read",
    "roots",
    "validate",
]

T = TypeVar("T")

_SUFFIXES = (".toml", ".json")  # of paths; Hugging Face's descriptions of models are JSON

_KINDS = {
    "scenarios": "scenario",
    "models": "model",
    "topologies": "topology",
    "topologies/devices": "device",
    "topologies/stacks": "stack",
    "topologies/frameworks": "framework",
    "topologies/backends": "backend",
    "topologies/recipes": "recipe",
    "topologies/failures": "table of failures",
}


def roots() -> list[Path]:
    """The folders in which files are looked up; the first folder that has a file wins."""
    return [Path(), *plugins.roots(), packaged_root()]


def names(folder: str) -> list[str]:
    """All names that `find` knows in a folder, sorted."""
    return sorted({path.stem for root in roots() for path in _files(root, folder)})


def _files(root: Path, folder: str) -> list[Path]:
    return listed(root / folder, ".toml")


def _matches(path: Path, name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in _patterns(path))


@remembered(1024)
def _patterns(path: Path) -> tuple[str, ...]:
    """The further names of a file; a broken file has none, so other names can still be found.

    Raises `InputError` for names that are no texts.
    """
    try:
        content = read(path)
    except InputError:
        return ()
    return _texts(content.get("names", []), "names", path)


def _texts(value: Any, key: str, path: Path) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise InputError(place(path), f"{key} is not a list of texts", f'write {key} = ["nemo-2*"]')
    return tuple(value)


def has(folder: str, name: str) -> bool:
    """Whether `find` knows a name (or a path). Raises `InputError` where two files match it."""
    return found(folder, name, "command line") is not None


def find(folder: str, name: str, *, where: str = "command line") -> Path:
    """The file that a name (or a path) stands for: the file of that name, otherwise the file with a
    matching pattern in its `names`. Case does not matter; spaces and underscores count as hyphens.

    Raises `InputError` if two files match, or none; the message then has the nearest known name.

    >>> find("topologies/stacks", "megatron-bridge-26.04").stem
    'megatron-bridge'
    >>> find("topologies/devices", "H100 80GB SXM").stem
    'h100-80gb-sxm'
    """
    path = found(folder, name, where)
    if path is not None:
        return path
    from sim.config.near import meant

    known = names(folder)
    kind = _KINDS.get(folder, "file")
    if "/" in name and not name.endswith(_SUFFIXES) and not exists(Path(name)):
        remedy = "for a model of the Hugging Face hub, give the path of its config.json"
        raise UnknownNameError(where, _absence(name, kind), remedy)
    here = f"give the file with its ending: {name}.toml" * exists(Path(f"{name}.toml"))
    remedy = here or _other(folder, name) or meant(Path(name).stem, known)
    remedy = remedy or f"`sim list` shows every {kind}"
    raise UnknownNameError(where, _absence(name, kind), remedy)


def _other(folder: str, name: str) -> str:
    """A remedy for a name of another kind of file."""
    kinds = [
        kind
        for candidate, kind in _KINDS.items()
        if candidate != folder and name in names(candidate)
    ]
    plays = {
        "scenario": f": `sim run {name}` plays it",
        "model": f": `sim init NAME --model {name}` writes a scenario that trains it",
    }
    return f"that is a {kinds[0]}{plays.get(kinds[0], '')}" if kinds else ""


def found(folder: str, name: str, where: str = "command line") -> Path | None:
    """The file of a name, as in `find`, or None. Raises `InputError` where two files match."""
    for path in _candidates(folder, name):
        if exists(path):
            return path
    for root in roots():
        matching = [path for path in _files(root, folder) if _matches(path, name)]
        if len(matching) > 1:
            fault = f"{matching[0].name} and {matching[1].name} both stand for {name!r}"
            raise InputError(where, fault, "narrow the `names` of one of them")
        if matching:
            return matching[0]
    return None


def _absence(name: str, kind: str) -> str:
    if not allowed(Path(name)):
        return f"{name!r} may not be read here"
    if not name.endswith(_SUFFIXES):
        ending = " or ".join(_SUFFIXES)
        there = f", and the file of that name does not end in {ending}" * os.path.isfile(name)
        return f"no {kind} named {name!r}{there}"
    return f"{name!r} is a folder" if os.path.isdir(name) else f"no file {name!r}"


def _candidates(folder: str, name: str) -> Iterator[Path]:
    if name.endswith(_SUFFIXES):
        yield Path(name)
    else:
        yield from (root / folder / f"{name}.toml" for root in roots())
        if folder == "models":  # a checkpoint's folder comes before a similar packaged name
            yield Path(name) / "config.json"
        spelled = name.casefold().replace(" ", "-").replace("_", "-")
        yield from (root / folder / f"{spelled}.toml" for root in roots())


def place(path: Path, *, changed: bool = False) -> str:
    """How an error names a file: packaged files relative to the package, `changed` ones marked.

    >>> place(packaged_root() / "models" / "gpt3-175b.toml", changed=True)
    'models/gpt3-175b.toml (changed)'
    """
    inside = path.is_relative_to(packaged_root())
    shown = path.relative_to(packaged_root()) if inside else path
    return f"{shown} (changed)" if changed else str(shown)


def read(path: Path) -> dict[str, Any]:
    """The content of a TOML or JSON file, which is parsed once for each version of the file. Raises
    `InputError`."""
    return cast(dict[str, Any], _copied(_parsed(path)))


def _copied(value: Any) -> Any:
    """A copy of a table or list of plain data."""
    if isinstance(value, dict):
        return {key: _copied(inner) for key, inner in value.items()}
    return [*map(_copied, value)] if isinstance(value, list) else value


@remembered(1024)
def _parsed(path: Path) -> dict[str, Any]:
    content = text(path, where=place(path))
    try:
        found: Any = json.loads(content) if path.suffix == ".json" else tomllib.loads(content)
    except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
        reason = f"is not valid {path.suffix.removeprefix('.').upper()}: {error}"
        raise InputError(place(path), reason, "correct that line") from None
    if not isinstance(found, dict):
        raise InputError(place(path), "has no keys and values", "take a file that begins with {")
    refuse_unsound(found, place(path))
    return found


def document(
    folder: str,
    path: Path,
    keys: Callable[[dict[str, Any], str], dict[str, Any]] = lambda content, place: content,
) -> dict[str, Any]:
    """The content of a file of `folder`, laid over the content of the file that it is `like`.
    `keys` translates the keys of files from other programs into the folder's own keys."""
    content: dict[str, Any] = {}
    for file in reversed(lineage(folder, path)):
        written = read(file)
        if folder in ("models", "topologies") and "topology" in written:
            fault = f"is a scenario, not a {_KINDS.get(folder, 'file')}"
            raise InputError(place(file), fault, f"play it with `sim run {place(file)}`")
        local = keys(written, place(file))
        content = overlaid(
            content, {key: local[key] for key in local if key not in ("like", "names")}
        )
    return content


def lineage(folder: str, path: Path) -> list[Path]:
    """A file, the file that it is `like`, and so on. Raises `InputError` for a circle."""
    files = [path]
    while (model := read(files[-1]).get("like")) is not None:
        where = place(files[-1])
        if not isinstance(model, str):
            raise InputError(where, "like is not a text", 'write like = "NAME"')
        files.append(find(folder, model, where=f"{where}, like"))
        if files[-1] in files[:-1]:
            raise InputError(where, f"like = {model!r} leads in a circle", "leave it out")
    return files


def overlaid(table: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A table with some of its values changed; values of inner tables are changed one by one.

    >>> overlaid({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"c": 4}})
    {'a': 1, 'b': {'c': 4, 'd': 3}}
    """
    result = dict(table)
    for key, value in changes.items():
        inner = result.get(key)
        if isinstance(inner, Mapping) and isinstance(value, Mapping):
            value = overlaid(inner, value)
        result[key] = value
    return result


def load(folder: str, name: str, kind: type[T], *, where: str = "command line") -> T:
    """Find, parse and validate a file in one go."""
    path = find(folder, name, where=where)
    return validate(document(folder, path), kind, place(path))
