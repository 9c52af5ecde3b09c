"""Dataclasses as the tables of files that `sim.config.schema` validates."""

import copy
from collections.abc import Collection, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from sim.config.schema import annotations_of, inline_field, tagged_in


def table_of(thing: Any, keys: Collection[str]) -> dict[str, Any]:
    """The values of a dataclass that are not at their defaults, as the table of a file, from which
    `validate` makes an equal dataclass. Inner dataclasses are tables where dotted `keys` lead into
    them."""
    kind: Any = type(thing)
    inline, table = inline_field(kind), dict[str, Any]()
    for field in fields(thing):
        value = getattr(thing, field.name)
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if value is default or (type(value) is type(default) and value == default):
            continue
        head = f"{field.name}."
        within = [key.removeprefix(head) for key in keys if key.startswith(head)]
        tagged = tagged_in(annotations_of(kind).written[field.name])
        if isinstance(value, Mapping):
            value = copy.deepcopy(dict(value))
        elif is_dataclass(value) and (within or inline):
            tag = {tagged.tag: getattr(value, tagged.tag)} if tagged else {}
            value = tag | table_of(value, within or keys)
        if inline and tagged is inline[1]:
            table |= value
        else:
            table[field.name] = value
    return table
