"""Settings for measured rows (`sim validate --set`): changes of the files that a row names.

Keys are the same as for `sim run --set`. One setting applies to rows of many clusters and stacks.
It is ignored for a file that does not have the key's table (such as "network" of a single node).
"""

from collections.abc import Iterable, Mapping
from typing import Any

from sim.config import catalog
from sim.config.errors import InputError
from sim.config.schema import validated_field
from sim.hardware import stack as stacks
from sim.hardware.cluster import topology as topologies
from sim.hardware.cluster.topology import Topology
from sim.hardware.stack import Stack
from sim.parallel.plan import Plan
from sim.scenario.settings import changed, changes_of

NO_SETTINGS: Mapping[str, Any] = {}
_HEADS = ("stack", "device", "topology", "network", "node", "host", "plan")
_STACKS, _TOPOLOGIES = "topologies/stacks", "topologies"


def changed_topology(name: str, settings: Mapping[str, Any], where: str) -> Topology:
    """Return a cluster with settings applied. Raises `InputError`."""
    return topologies.load(name, _of_cluster(name, settings, where), where=where)


def changed_stack(software: str, precision: str, settings: Mapping[str, Any], where: str) -> Stack:
    """Return the stack that runs a precision, with settings applied. Raises `InputError`."""
    name = stacks.load(software, where=where).precisions.get(precision, software)
    return _stack(name, _of_stack(name, settings, where), where)


def of_plan(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a row's plan."""
    return {key[5:]: value for key, value in settings.items() if key.startswith("plan.")}


def check(
    settings: Mapping[str, Any], rows: Iterable[Mapping[str, Any]], *, all_used: bool
) -> None:
    """Raise `InputError` for a setting that a file refuses. With `all_used`, also raise it for a
    setting whose table is in no file of these rows."""
    for key in settings:
        head, _, rest = key.partition(".")
        if head not in _HEADS or not rest:
            raise InputError.unknown("--set", f"rows take no key {key!r}", head, list(_HEADS))
    for key, value in of_plan(settings).items():
        validated_field(Plan, key, value, "--set, plan")
    taken = {key for key in settings if key.startswith("plan.")}
    named = [(str(row["id"]), str(row["cluster"]), str(row["software"])) for row in rows]
    for cluster in {cluster for _, cluster, _ in named if catalog.has(_TOPOLOGIES, cluster)}:
        changes = _of_cluster(cluster, settings, cluster)
        topologies.load(cluster, changes)
        taken |= {key if key in settings else f"topology.{key}" for key in changes}
    for software in {software for *_, software in named if catalog.has(_STACKS, software)}:
        changes = _of_stack(software, settings, software)
        _stack(software, changes, software)
        taken |= {f"stack.{key}" for key in changes}
    if all_used and (unused := [key for key in settings if key not in taken]):
        fault = f"no file that these rows name has the table of {unused[0]!r}"
        raise InputError("--set", fault, "`sim show NAME` shows what a file has")


def _of_cluster(name: str, settings: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the settings that apply to a cluster's file, and to the file of its device."""
    if not (files := _of_files(settings)):
        return {}
    path = catalog.find(_TOPOLOGIES, name, where=where)
    document = catalog.document(_TOPOLOGIES, path)
    applicable = _applicable(document, changes_of(files, "topology"))
    device = catalog.find("topologies/devices", document["device"], where=where)
    rates = _applicable(catalog.document("topologies/devices", device), changes_of(files, "device"))
    return applicable | {f"device.{key}": value for key, value in rates.items()}


def _of_stack(name: str, settings: Mapping[str, Any], where: str) -> dict[str, Any]:
    document = catalog.document(_STACKS, catalog.find(_STACKS, name, where=where))
    return _applicable(document, changes_of(_of_files(settings), "stack"))


def _stack(name: str, changes: Mapping[str, Any], where: str) -> Stack:
    path = catalog.find(_STACKS, name, where=where)
    place = catalog.place(path, changed=bool(changes))
    document = changed(catalog.document(_STACKS, path), changes, place)
    return catalog.validate(document, Stack, place)


def _of_files(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if not key.startswith("plan.")}


def _applicable(document: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in changes.items() if _has_table(document, key)}


def _has_table(document: Any, key: str) -> bool:
    *tables, _ = key.split(".")
    for table in tables:
        if not isinstance(document, Mapping) or table not in document:
            return False
        document = document[table]
    return isinstance(document, Mapping)
