"""Settings: single values of a scenario and of the files that it names, by dotted key."""

import copy
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from sim.config import gate
from sim.config.errors import InputError
from sim.config.schema import Section, annotations_of

Settings = str | Iterable[str] | Mapping[str, Any]

# The tables that `[change]` and `--set` may change, with the file of each table and its prefix.
FILES = {
    "model": ("model", ""),
    "stack": ("stack", ""),
    "topology": ("topology", ""),
    "device": ("device", ""),
    "network": ("topology", "network."),
    "node": ("topology", "node."),
    "host": ("topology", "host."),
    "storage": ("topology", "storage."),
}
_TABLES = {  # tables whose keys people may write without their table's name
    "plan": Section("sim.parallel.plan:Plan"),
    "model": Section("sim.model.transformer:Transformer"),
    "network": Section("sim.hardware.cluster.pods:PodNetwork"),
    "device": Section("sim.hardware.device:Device"),
    "stack": Section("sim.hardware.stack:Stack"),
    "node": Section("sim.hardware.cluster.node_fabric:NodeFabric"),
    "host": Section("sim.hardware.cluster.host:Host"),
    "storage": Section("sim.hardware.cluster.storage:Storage"),
    "topology": Section("sim.hardware.cluster.topology:Topology"),
}


def settings_of(settings: Settings, price: str | None = None) -> dict[str, Any]:
    """Return keys and values of settings; a given `price` of a GPU comes last.

    Raises `InputError`.
    """
    settings = [settings] if isinstance(settings, str) else settings
    pairs = [*(settings.items() if isinstance(settings, Mapping) else _read(settings))]
    for key, value in pairs:
        gate.refuse_unsound(value, f"setting {gate.shown(key)}")
    return dict(pairs if price is None else [*pairs, ("topology.price.hour", price)])


def _read(settings: Iterable[str]) -> Iterator[tuple[str, Any]]:
    for written in settings:
        from sim.scenario.setting_texts import setting

        yield setting(written)


def changes_of(change: Mapping[str, Any], file: str) -> dict[str, Any]:
    """The changes that concern one file (model, stack, topology, device), by key of that file.

    >>> changes_of({"network.bandwidth": "100 Gb/s", "device": {"sms": 4}}, "topology")
    {'network.bandwidth': '100 Gb/s'}
    """
    split = ((split_key(key), value) for key, value in flat(change))
    return {prefix + rest: value for (owner, prefix, rest), value in split if owner == file}


def changed(document: dict[str, Any], changes: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return a document with dotted keys set; the keys must exist or be known to validation."""
    result = copy.deepcopy(document)
    for key, value in changes.items():
        put(result, key, value, where)
    return result


def put(document: dict[str, Any], key: str, value: Any, where: str) -> None:
    """Set the value of a dotted key in a document. Raises `InputError`."""
    *path, last = key.split(".")
    if len(path) > gate.DEEP:
        raise InputError(where, f"has a key of {len(path) + 1} parts", "shorten the key")
    for step in path:
        document = document.setdefault(step, {})
        if not isinstance(document, dict):
            raise InputError(
                where, f"{step!r} in {key!r} is a value, not a table", "shorten the key"
            )
    document[last] = value


def flat(table: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Yield values of a table and of its inner tables, by dotted key."""
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def split_key(key: str) -> tuple[str, str, str]:
    """Return the file that a change belongs to, and its key in that file in two parts. Raises
    `InputError`."""
    head, _, rest = key.partition(".")
    if head not in FILES or not rest:
        where, fault = "change", f"unknown key {key!r}"
        if remedy := in_table(key, FILES):
            raise InputError(where, fault, remedy)
        raise InputError.unknown(where, fault, head, list(FILES))
    if rest == "name" and head in ("device", "stack", "topology"):
        fault = f"{key}: measured runs and profiles are found by this name"
        raise InputError("change", fault, f"name another {head} instead: {head} = NAME")
    owner, prefix = FILES[head]
    return owner, prefix, rest


def in_table(key: str, among: Collection[str] = _TABLES) -> str:
    """Return the question whether the user meant a key of some table; empty if no table has it.

    >>> in_table("price.hour"), in_table("tp"), in_table("tp", FILES)
    ("did you mean 'topology.price.hour'?", "did you mean 'plan.tp'?", '')
    """
    head = head_of(key)
    has = [name for name, entry in _TABLES.items() if head in annotations_of(entry.table)]
    near = " or ".join(f"'{name}.{key}'" for name in has if name in among)
    return f"did you mean {near}?" if near else ""


def head_of(key: str) -> str:
    """Return the first part of a dotted key."""
    return key.partition(".")[0]


def dotted(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a file's table states, by dotted key.

    >>> dotted({"plan": {"tp": 2}, "change": {"network.nics": 4}})
    {'plan.tp': 2, 'network.nics': 4}
    """
    return {key.removeprefix("change."): value for key, value in flat(table)}
