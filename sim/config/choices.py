"""The keys that no longer belong in a table when a choice takes a new value."""

from collections.abc import Callable, Collection
from typing import Any, get_args

from sim.config.schema import Choice, annotations_of, dataclass_in, tagged_in


def chosen_anew(kind: Any, document: dict[str, Any], key: str, value: Any) -> None:
    """Remove the keys of a document of dataclass `kind` that no longer belong in it when a dotted
    key takes a new `value`."""
    name, _, last = key.partition(".")
    table = document.get(name)
    if isinstance(table, dict) and (
        choice := _choice(annotations_of(kind).written.get(name), last)
    ):
        left, default = choice
        gone = left(table.get(last, default), value)
        document[name] = {kept: table[kept] for kept in table if kept not in gone}


def _choice(table: Any, key: str) -> tuple[Callable[[Any, Any], Collection[str]], Any] | None:
    """The function `left` and the default of a key that decides which keys a table may have."""
    if tagged := tagged_in(table):
        return (tagged.left, tagged.default) if key == tagged.tag else None
    shape = dataclass_in(table)
    marks = get_args(annotations_of(shape).written.get(key)) if shape else ()
    left = next((mark.left for mark in marks if isinstance(mark, Choice)), None)
    return left and (left, shape.__dataclass_fields__[key].default)
