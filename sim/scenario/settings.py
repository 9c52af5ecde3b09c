"""Settings: single values of a scenario and of the files that it names, by dotted key."""

import copy
import tomllib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from sim.config import catalog, gate
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
    "storage": Section("sim.hardware.cluster.host:Storage"),
    "topology": Section("sim.hardware.cluster.topology:Topology"),
}


def settings_of(settings: Settings, price: str | None = None) -> dict[str, Any]:
    """Keys and values of settings; a given `price` of a GPU comes last.

    Raises `InputError`.
    """
    settings = [settings] if isinstance(settings, str) else settings
    pairs = [*(settings.items() if isinstance(settings, Mapping) else map(setting, settings))]
    for key, value in pairs:
        gate.refuse_unsound(value, f"setting {gate.shown(key)}")
    return dict(pairs if price is None else [*pairs, ("topology.price.hour", price)])


def setting(written: str) -> tuple[str, Any]:
    """Key and value of a `key=value` text. Raises `InputError` for anything else."""
    key, equals, text = written.partition("=")
    if not equals or not key.strip():
        raise InputError(f"--set {written}", "is not of the form key=value", "e.g. plan.tp=4")
    return key.strip(), value_of(text.strip())


def value_of(text: str) -> Any:
    """A value as written after `key=`: TOML, or a bare text such as 400 Gb/s."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text  # a bare word or a quantity such as 400 Gb/s


def changes_of(change: Mapping[str, Any], file: str) -> dict[str, Any]:
    """The changes that concern one file (model, stack, topology, device), by key of that file.

    >>> changes_of({"network.bandwidth": "100 Gb/s", "device": {"sms": 4}}, "topology")
    {'network.bandwidth': '100 Gb/s'}
    """
    split = ((split_key(key), value) for key, value in flat(change))
    return {prefix + rest: value for (owner, prefix, rest), value in split if owner == file}


def changed(document: dict[str, Any], changes: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A TOML document with dotted keys set; the keys must exist or be known to validation."""
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
    """Values of a table and of its inner tables, by dotted key."""
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def dotted(table: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a table of a file states, with keys that are dotted or in tables.

    >>> dotted({"plan": {"tp": 2}, "change": {"network.nics": 4}})
    {'plan.tp': 2, 'network.nics': 4}
    """
    return {key.removeprefix("change."): value for key, value in flat(table)}


def split_key(key: str) -> tuple[str, str, str]:
    """The file that a change belongs to, and its key in that file in two parts. Raises
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
    """The question whether the user meant a key of some table; empty where no table has the key.

    >>> in_table("price.hour"), in_table("tp"), in_table("tp", FILES)
    ("did you mean 'topology.price.hour'?", "did you mean 'plan.tp'?", '')
    """
    head = head_of(key)
    has = [name for name, own in _TABLES.items() if head in annotations_of(own.table)]
    near = " or ".join(f"'{name}.{key}'" for name in has if name in among)
    return f"did you mean {near}?" if near else ""


def head_of(key: str) -> str:
    """The first part of a dotted key."""
    return key.partition(".")[0]


FOLDER = "topologies/profiles"


def setting_of(name: str) -> tuple[str, str]:
    """Key and value of the setting that a profile stands for, given by name or path: times of a
    device's kernels, or constants of a collective library. Raises `InputError` for another file."""
    path = catalog.find(FOLDER, name, where="--profile")
    keys = catalog.read(path).keys()
    if "backend" in keys:
        return "topology.backend", name
    if "measurements" in keys:
        return "device.profile", name
    fault = "is the profile neither of a device nor of a collective library"
    spread = "errors of measured runs belong in topologies/validated/" * ("spreads" in keys)
    raise InputError(catalog.place(path), fault, spread or "`sim calibrate` writes one")
