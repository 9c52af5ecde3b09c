"""The library: named TOML files (models, topologies, stacks, scenarios) and the one door in.

A name is looked for in the user's own folder first, then among the packaged files, so
``sim run gpt3-175b-megatron`` works anywhere and a file of the user's wins.
"""

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from sim.errors import InputError

T = TypeVar("T")


@cache
def packaged_root() -> Path:
    """The folder that holds `models/`, `topologies/` and `scenarios/` of this installation."""
    here = Path(__file__).resolve().parent
    inside = here / "data"
    return inside if inside.is_dir() else here.parent


def roots() -> list[Path]:
    """Where files are looked for, first wins."""
    return [Path.cwd(), packaged_root()]


def names(folder: str) -> list[str]:
    """All names that `find` knows in a folder, sorted."""
    return sorted({path.stem for root in roots() for path in (root / folder).glob("*.toml")})


def find(folder: str, name: str, *, where: str = "command line") -> Path:
    """The file that a name (or a path ending in .toml) stands for.

    Raises `InputError` naming the nearest known name.
    """
    for path in _candidates(folder, name):
        if path.is_file():
            return path
    near = difflib.get_close_matches(name, names(folder), n=1)
    kind = folder.rstrip("/").split("/")[-1].rstrip("s").replace("topologie", "topology")
    remedy = f"did you mean {near[0]!r}?" if near else f"`sim list` shows every {kind}"
    raise InputError(where, f"no {kind} named {name!r}", remedy)


def _candidates(folder: str, name: str) -> Iterator[Path]:
    if name.endswith(".toml"):
        yield Path(name)
    else:
        yield from (root / folder / f"{name}.toml" for root in roots())


def read(path: Path) -> dict[str, Any]:
    """Parse a TOML file, or raise one precise `InputError`."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            str(path), f"cannot be read ({error.strerror})", "check the path"
        ) from None
    except UnicodeDecodeError:
        raise InputError(str(path), "is not UTF-8 text", "save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(str(path), f"is not valid TOML: {error}", "mend the line") from None


def validate(data: Any, kind: type[T], where: str) -> T:
    """Turn plain data into the frozen dataclass `kind`; the only place where pydantic is used.

    Unknown keys are refused with the nearest known one. Raises `InputError`.
    """
    from pydantic import ValidationError

    _refuse_unknown_keys(data, kind, where)
    try:
        return _adapter(kind).validate_python(data)
    except ValidationError as error:
        raise _first_fault(error, where) from None


@cache
def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def load(folder: str, name: str, kind: type[T], *, where: str = "command line") -> T:
    """Find, parse and validate in one go."""
    path = find(folder, name, where=where)
    return validate(read(path), kind, str(path))


def _first_fault(error: Any, where: str) -> InputError:
    fault = error.errors()[0]
    steps = [str(step) for step in fault["loc"]]
    place = ", ".join([where, ".".join(steps[:-1])] if len(steps) > 1 else [where])
    key = steps[-1] if steps else ""
    if fault["type"] in ("missing", "missing_argument", "missing_keyword_only_argument"):
        return InputError(place, f"{key} is missing", f"add {key} = ...")
    message = fault["msg"].removeprefix("Value error, ")
    what, _, remedy = message.partition("; ")
    return InputError(place, f"{key}: {what}" if key else what, remedy)


def _refuse_unknown_keys(data: Any, kind: Any, where: str) -> None:
    """pydantic ignores unknown keys of plain dataclasses; a typing error must not pass so."""
    if isinstance(data, list):
        for item in data:
            _refuse_unknown_keys(item, kind, where)
    if isinstance(data, dict) and get_origin(kind) in (dict, Mapping):
        for key, value in data.items():
            _refuse_unknown_keys(value, get_args(kind)[1], f"{where}, {key}")
        return
    shape = _dataclass_in(kind)
    if shape is None or not isinstance(data, dict):
        return
    known = get_type_hints(shape)
    for key, value in data.items():
        if key not in known:
            raise InputError(where, f"unknown key {key!r}", _nearest(key, list(known)))
        _refuse_unknown_keys(value, known[key], f"{where}, {key}")


def _dataclass_in(kind: Any) -> Any:
    """The dataclass that an annotation such as `tuple[Straggler, ...]` or `Plan | None` holds."""
    if is_dataclass(kind):
        return kind
    return next((found for part in get_args(kind) if (found := _dataclass_in(part))), None)


def _nearest(key: str, known: list[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
