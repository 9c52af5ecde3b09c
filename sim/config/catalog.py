"""The catalog: named TOML files of models, topologies, stacks and scenarios.

A name is looked up in the user's own folder first, then among the packaged files, so that
``sim run gpt3-175b-megatron`` works anywhere and the user's own file wins.
"""

import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from sim.config.errors import InputError
from sim.config.schema import validate

__all__ = [
    "find",
    "has",
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

_KINDS = {
    "scenarios": "scenario",
    "models": "model",
    "topologies": "topology",
    "topologies/devices": "device",
    "topologies/stacks": "stack",
    "topologies/backends": "backend",
}


@cache
def packaged_root() -> Path:
    """The folder that holds `models/`, `topologies/` and `scenarios/` of this installation."""
    package = Path(__file__).resolve().parents[1]
    data = package / "data"
    return data if data.is_dir() else package.parent


def roots() -> list[Path]:
    """Where files are looked up, the first one wins."""
    return [Path(), packaged_root()]


def names(folder: str) -> list[str]:
    """All names that `find` knows in a folder, sorted."""
    return sorted({path.stem for root in roots() for path in (root / folder).glob("*.toml")})


def has(folder: str, name: str) -> bool:
    """Whether `find` knows a name (or a path)."""
    return any(map(os.path.isfile, _candidates(folder, name)))


def find(folder: str, name: str, *, where: str = "command line") -> Path:
    """The file that a name (or a path ending in .toml) stands for.

    Raises `InputError` naming the nearest known name.
    """
    for path in _candidates(folder, name):
        if os.path.isfile(path):  # unlike Path.is_file, false for names that no file can have
            return path
    known = names(folder)
    kind = _KINDS.get(folder, "file")
    near = difflib.get_close_matches(Path(name).stem, known, n=1)
    remedy = f"did you mean {near[0]!r}?" if near else f"`sim list` shows every {kind}"
    raise InputError(where, _absence(name, kind), remedy)


def _absence(name: str, kind: str) -> str:
    if not name.endswith(".toml"):
        return f"no {kind} named {name!r}"
    return f"{name!r} is a folder" if os.path.isdir(name) else f"no file {name!r}"


def _candidates(folder: str, name: str) -> Iterator[Path]:
    if name.endswith(".toml"):
        yield Path(name)
    else:
        yield from (root / folder / f"{name}.toml" for root in roots())


def place(path: Path, *, changed: bool = False) -> str:
    """How an error names a file: packaged files relative to the package, `changed` ones as such.

    >>> place(packaged_root() / "models" / "gpt3-175b.toml", changed=True)
    'models/gpt3-175b.toml (changed)'
    """
    inside = path.is_relative_to(packaged_root())
    shown = path.relative_to(packaged_root()) if inside else path
    return f"{shown} (changed)" if changed else str(shown)


def read(path: Path) -> dict[str, Any]:
    """Parse a TOML file, or raise one precise `InputError`."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            place(path), f"cannot be read ({error.strerror})", "check the path"
        ) from None
    except UnicodeDecodeError:
        raise InputError(place(path), "is not UTF-8 text", "save it as UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        reason = f"is not valid TOML: {error}"
        raise InputError(place(path), reason, "correct that line") from None


def overlaid(table: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A table with some of its values changed, those of inner tables one by one.

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
    """Find, parse and validate in one go."""
    path = find(folder, name, where=where)
    return validate(read(path), kind, place(path))
