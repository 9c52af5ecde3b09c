"""Writes docs/reference.md: every key of every file, from the dataclasses that validate them.

python -m docs.reference
"""

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from sim.analysis.reliability.failures import Failures
from sim.config.plugins import modules
from sim.config.schema import Tagged, annotations_of
from sim.config.units import EXAMPLES, Unit
from sim.hardware.cluster.topology import Topology
from sim.hardware.device import Device
from sim.hardware.stack import Stack
from sim.jobs.generation.engine import Engine
from sim.model import kinds
from sim.model.precision import Recipe
from sim.model.transformer import Transformer
from sim.scenario.scenario import Scenario

PAGE = Path(__file__).resolve().parent / "reference.md"
HEAD = """\
# Every key of every file

Written by `python -m docs.reference` from the dataclasses that validate the files; `--set` takes
the same keys. A quantity is a text with its unit; *needed* stands where there is no default.
"""
KINDS = [
    folder.__name__
    for folder in modules("sim.jobs").values()
    if hasattr(folder, "KEYS")
    and not hasattr(folder, "claims")  # recordings are files of their own
]
FILES = (
    (
        "Scenarios: `scenarios/NAME.toml`",
        (Scenario, *(import_module(f"{home}.kind").SCENARIO for home in KINDS)),
    ),
    ("Models: `models/NAME.toml`", (Transformer,)),
    ("Devices: `topologies/devices/NAME.toml`", (Device,)),
    ("Clusters: `topologies/NAME.toml`", (Topology,)),
    ("Software: `topologies/stacks/NAME.toml`", (Stack,)),
    ("Servers: `topologies/engines/NAME.toml`", (Engine,)),
    ("Recipes of low precision: `topologies/recipes/NAME.toml`", (Recipe,)),
    ("Failures: `sim goodput --failures FILE.toml`", (Failures,)),
)
PLAIN = {bool: "true or false", int: "whole number", float: "number", str: "text", Any: "any"}


def page() -> str:
    """The whole reference, as Markdown."""
    sections, seen = [HEAD], set[type]()
    for title, shapes in FILES:
        sections.append(f"\n## {title}\n")
        for shape in shapes:
            sections += _sections(shape, "", seen)
        if Transformer in shapes:
            sections += _blocks(seen)
    return "\n".join(sections)


def _blocks(seen: set[type]) -> Iterator[str]:
    """What each kind of a model's blocks has to know beside its shape."""
    for name, module in kinds.kinds().items():
        settings = getattr(module, "SETTINGS", None)
        if settings:
            yield from _sections(settings, "blocks.NAME", seen, f'`kind = "{name}"`')


def _sections(shape: type, table: str, seen: set[type], when: str = "") -> Iterator[str]:
    """A table of keys for a dataclass, then those of the tables within it."""
    if shape in seen:
        return
    known = {field.name for base in shape.__mro__[1:] if base in seen for field in fields(base)}
    seen.add(shape)
    hints = annotations_of(shape)
    own = [one for one in fields(shape) if one.init and one.name not in known]
    if table:
        yield f"\n### `[{table}]`{' with ' if when else ''}{when}\n"
    if own and shape.__doc__ and not shape.__doc__.startswith(f"{shape.__name__}("):
        yield _prose(shape)
    if own:
        yield "| key | | default |\n| --- | --- | --- |"
        yield "\n".join(_row(one, hints[one.name]) for one in own) + "\n"
    for one in own:
        yield from _within(one.name, hints[one.name], table, seen)


def _within(key: str, hint: Any, table: str, seen: set[type]) -> Iterator[str]:
    path = f"{table}.{key}" if table else key
    for mark in _parts(hint, Tagged):
        place = table if mark.inline else path
        above = {kind for one in mark.choices.values() for kind in one.__mro__ if _table(kind)}
        for kind in sorted(above, key=lambda kind: (len(kind.__mro__), kind.__name__)):
            values = [f'"{value}"' for value, one in mark.choices.items() if issubclass(one, kind)]
            which = ", ".join(values) if len(values) < len(mark.choices) else "..."
            yield from _sections(kind, place, seen, f"`{mark.tag} = {which}`")
    for kind in _parts(hint, type):
        if _table(kind) and not _parts(hint, Tagged):
            yield from _sections(kind, path, seen)


def _table(kind: type) -> bool:
    return is_dataclass(kind)


def _row(one: Field[Any], hint: Any) -> str:
    if one.default is not MISSING:
        default = _value(one.default)
    elif one.default_factory is not MISSING:
        default = _value(one.default_factory())
    else:
        default = "*needed*"
    return f"| `{one.name}` | {_words(hint)} | {default} |"


def _value(value: Any) -> str:
    if value is None or value in ("", ()) or is_dataclass(value) or isinstance(value, Mapping):
        return ""
    if isinstance(value, tuple | frozenset):
        return f"`[{', '.join(map(repr, value))}]`".replace("'", '"')
    return f"`{str(value).lower() if isinstance(value, bool) else repr(value)}`".replace("'", '"')


def _words(hint: Any) -> str:
    """What a key may hold, in words.

    >>> _words(Annotated[float, Unit("B/s")] | None)
    'text such as `"400 Gb/s"`'
    >>> _words(tuple[Literal["ring", "tree"], ...])
    'list of `"ring"`, `"tree"`'
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _annotated(arguments)
    if origin is Literal:
        return ", ".join(f"`{_quoted(value)}`" for value in arguments)
    if origin in (Union, UnionType):
        return " or ".join(_words(part) for part in arguments if part is not NoneType)
    if origin in (tuple, list, frozenset):
        return f"list of {_words(arguments[0])}"
    if inspect.isclass(origin) and issubclass(origin, Mapping):
        return f"table of {_words(arguments[1])}"
    return PLAIN.get(hint, "table" if is_dataclass(hint) else str(getattr(hint, "__name__", hint)))


def _annotated(arguments: tuple[Any, ...]) -> str:
    kind, *marks = arguments
    for mark in marks:
        if isinstance(mark, Unit):
            return f'text such as `"{EXAMPLES[mark.symbol]}"`'
        if isinstance(mark, Tagged):
            return f"table, by its `{mark.tag}`"
    bounds = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    limits = [
        f"{word} {getattr(mark, name):g}"
        for mark in marks
        for name, word in bounds.items()
        if hasattr(mark, name)
    ]
    return ", ".join([_words(kind), *limits])


def _quoted(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower()


def _parts(hint: Any, kind: type) -> list[Any]:
    """What of an annotation is of a kind, however deep."""
    if isinstance(hint, kind):
        return [hint]
    marks = getattr(hint, "__metadata__", ())
    return [found for part in (*get_args(hint), *marks) for found in _parts(part, kind)]


def _prose(shape: type) -> str:
    """The docstring without its examples, lines joined; code between one kind of quotes."""
    text = inspect.getdoc(shape) or ""
    paragraphs = [part for part in text.split("\n\n") if not part.lstrip().startswith(">>>")]
    joined = (re.sub(r"\s*\n\s*(?!- )", " ", part) for part in paragraphs)
    return "\n\n".join(joined).replace("``", "`") + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
