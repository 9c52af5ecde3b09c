"""Dataclasses as the tables of files that `sim.config.schema` validates."""

import copy
from collections.abc import Collection, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from sim.config.checked import has_unit
from sim.config.schema import annotations_of, inline_field, tagged_in
from sim.config.units import InSI


def table_of(thing: Any, keys: Collection[str]) -> dict[str, Any]:
    """A dataclass as the table of a file, without values that are at their defaults. `validate`
    makes an equal dataclass from the table. An inner dataclass becomes a table if one of the
    dotted `keys`, such as "plan.tp", names a field in it; otherwise it stays an object."""
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
        if has_unit(annotations_of(kind).written[field.name]):
            value = _in_si(value)
        elif isinstance(value, Mapping):
            value = copy.deepcopy(dict(value))
        elif is_dataclass(value) and (within or inline):
            tag = {tagged.tag: getattr(value, tagged.tag)} if tagged else {}
            value = tag | table_of(value, within or keys)
        if inline and tagged is inline[1]:
            table |= value
        else:
            table[field.name] = value
    return table


def _in_si(value: Any) -> Any:
    """One quantity or several, marked as numbers in SI units."""
    if isinstance(value, tuple):
        return tuple(map(_in_si, value))
    if isinstance(value, Mapping):
        return {key: _in_si(entry) for key, entry in value.items()}
    return InSI(value) if isinstance(value, int | float) else value
