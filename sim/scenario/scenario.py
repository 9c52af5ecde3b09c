"""A scenario: which model, on which machine, by which plan; from TOML to one frozen object."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Gt

from sim.config import catalog, gate, reads
from sim.config.checked import Checked, altered
from sim.config.errors import InputError
from sim.config.schema import Tagged, nearest
from sim.config.units import BytesPerSecond
from sim.hardware.cluster.host import Host
from sim.hardware.cluster.node_fabric import NodeFabric
from sim.hardware.cluster.pods import PodNetwork
from sim.hardware.cluster.topology import Topology
from sim.hardware.device import Device
from sim.hardware.stack import Stack
from sim.model.transformer import Transformer
from sim.parallel.plan import Plan
from sim.recording.file import is_recording
from sim.recording.recording import Recording
from sim.scenario.settings import (
    FILES,
    Settings,
    changes_of,
    flat,
    head_of,
    put,
    settings_of,
    split_key,
)
from sim.sharing.plan import Sharing, methods
from sim.variability.jitter import Jitter

Factor = Annotated[float, Gt(0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler(Checked):
    """A rank, a stage, a node or a link that is slower than its peers by `factor`.

    A GPU's kernels take `factor` times as long; a link has its bandwidth divided by it, or less
    bandwidth by the `traffic` of others, which gives way to nobody.
    """

    factor: Factor | None = None
    traffic: BytesPerSecond | None = None
    rank: int | None = None
    stage: int | None = None
    node: int | None = None
    link: str | None = None

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        named = [key for key in ("rank", "stage", "node", "link") if getattr(self, key) is not None]
        if len(named) != 1:
            raise ValueError("name one of rank, stage, node or link; e.g. rank = 3")
        if (self.factor is None) == (self.traffic is None):
            raise ValueError("give either a factor, or the traffic of others on a link")
        if self.traffic is not None and self.link is None:
            raise ValueError('traffic is on a link: name it, e.g. link = "node3.nic0"')
        if self.factor == float("inf"):
            raise ValueError("factor must be finite; failures are another matter")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """Checkpoints every so many `steps`, for which training stops until they are in `storage`."""

    steps: Annotated[int, Ge(1)]
    storage: BytesPerSecond


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario(Checked):
    """A question to the simulator: the names of files, or, in Python, what they stand for.

    `change` alters single values of the named files for this scenario only, by dotted key:
    `network.bandwidth`, `device.memory`, `model.seq`, `stack.overlap_gradients`. `tokens` is how
    many the whole training takes, `checkpoints` what it stops for, both for its cost.

    >>> plan = Plan(global_batch=64, tp=2)
    >>> Scenario(model="llama3-8b", topology="dgx-h100-ndr", plan=plan).stack
    'megatron-core'
    """

    name: str = "scenario"
    description: str = ""
    model: str | Transformer
    topology: str | Topology
    stack: str | Stack = "megatron-core"
    gpus: Annotated[int, Gt(0)] | None = None
    tokens: Annotated[float, Gt(0)] | None = None
    checkpoints: Checkpoints | None = None
    plan: Plan
    straggler: tuple[Straggler, ...] = ()
    jitter: Jitter | None = None
    change: dict[str, Any] = field(default_factory=dict)

    def changes(self, file: str) -> dict[str, Any]:
        """The changes that concern one file (model, stack, topology, device), keys within it."""
        return changes_of(self.change, file)


class NoPlan(Plan):
    """Workers are not laid out by a plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingScenario(Scenario):
    """A question about workers that share updates by a method of their own: a `[sharing]` table.

    Without a `[plan]` a worker is a GPU, or a node of them; with one it is the group that the plan
    lays out. No model is needed where `[sharing.times]` says how long a step takes.
    """

    model: str | Transformer = ""
    stack: str | Stack = "pytorch-ddp"
    backend: str = "nccl"
    plan: Plan = field(default_factory=lambda: NoPlan(global_batch=1))
    sharing: Annotated[Sharing, Tagged("method", methods)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedScenario(Scenario):
    """A question about a training script whose step was recorded (`sim capture`): `record` is the
    file, or its recordings, one a pipeline stage. Who runs what is in there, so that nothing is
    left to plan. `allocator` are settings of torch's caching allocator as in PYTORCH_ALLOC_CONF,
    instead of those that the script had."""

    model: str | Transformer = ""
    stack: str | Stack = "pytorch-eager"
    plan: Plan = field(default_factory=lambda: NoPlan(global_batch=1))
    record: str | tuple[Recording, ...]
    allocator: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterScenario(Scenario):
    """A question about a cluster alone, which runs nothing."""

    model: str | Transformer = ""
    plan: Plan = field(default_factory=lambda: NoPlan(global_batch=1))


_OF_CLUSTER = ("straggler", "topology", "network", "node", "device", "host")

_TABLES: dict[str, Any] = {  # whose keys people may write without the table
    "plan": Plan, "model": Transformer, "network": PodNetwork, "device": Device, "stack": Stack,
    "node": NodeFabric, "host": Host,
}  # fmt: skip


def load(given: str | os.PathLike[str] | Scenario, settings: Settings = ()) -> Scenario:
    """The scenario of a name or path, or one that is there already, with settings applied:
    `key=value` texts, or a mapping. Of a recording's file settings name the topology.

    Raises `InputError` for an unknown name, an unknown key or a value out of range.

    >>> load("gpt3-175b-megatron", {"plan.tp": 4, "network.bandwidth": "100 Gb/s"}).change
    {'network.bandwidth': '100 Gb/s'}
    """
    if isinstance(given, Scenario):
        return _changed(given, settings_of(settings))
    try:
        name = os.fspath(given)
    except TypeError:
        what = f"{gate.shown(given)} is no scenario"
        remedy = 'give a name such as "gpt3-175b-megatron", or a Scenario'
        raise InputError("scenario", what, remedy) from None
    if is_recording(name):
        return _recorded(name, settings_of(settings))
    path = catalog.find("scenarios", name)
    return described({"name": path.stem, **catalog.read(path)}, settings, catalog.place(path))


def _recorded(record: str, settings: Mapping[str, Any]) -> Scenario:
    """The scenario of a recording on the cluster that settings name."""
    if not reads.exists(Path(record)):
        raise InputError(record, "is not there", "record it with `sim capture`")
    for key in settings:
        if head_of(key) == "plan":
            what = "a recorded script has laid itself out"
            remedy = "leave it out, or capture the script anew with another layout"
            raise InputError(f"setting {key}", what, remedy)
    if "topology" not in settings:
        raise InputError(record, "no topology to play it on", "name one: see `sim list topologies`")
    name, cluster = (Path(own).name for own in (record, str(settings["topology"])))
    called = f"{name.partition('.')[0]}, {cluster.removesuffix('.toml')}"
    return described({"name": called, "record": record}, settings, record)


def _changed(scenario: Scenario, settings: Mapping[str, Any]) -> Scenario:
    """Settings of a scenario that is no document."""
    for key, value in settings.items():
        key, changes = _owner(key, type(scenario))
        new = {"change": {**dict(flat(scenario.change)), key: value}} if changes else {key: value}
        scenario = altered(scenario, new, f"setting {key}")
        if changes:
            split_key(key)
    return scenario


def cluster_scenario(
    topology: str | Topology, settings: Settings = (), gpus: int | None = None
) -> ClusterScenario:
    """A cluster with what settings change of it or make slow, as in any scenario. Raises
    `InputError` for settings that are of no cluster."""
    changes = settings_of(settings)
    for key in changes:
        if head_of(key) not in _OF_CLUSTER:
            what = f"a cluster alone has no {head_of(key)}"
            raise InputError(f"setting {key}", what, f"set one of {', '.join(_OF_CLUSTER)}")
    named = {"name": name_of(topology), "topology": topology}
    return _changed(ClusterScenario(**named, gpus=gpus), changes)  # type: ignore[return-value, arg-type]


def described(
    document: dict[str, Any],
    settings: Settings = (),
    where: str = "scenario",
) -> Scenario:
    """The scenario that a document says, with settings applied. Raises `InputError`.

    >>> job = {"model": "llama3-8b", "topology": "dgx-h100-ndr", "plan": {"global_batch": 64}}
    >>> described(job, "plan.tp=2").plan.tp
    2
    """
    changes = settings_of(settings)
    heads = {*document, *map(head_of, changes)}
    kind = _kind(heads)
    for key, value in changes.items():
        _apply(document, key, value, kind)
    if kind is SharingScenario:
        _refuse_whole_job(document, where)
    scenario = catalog.validate(document, kind, where)
    for key, _ in flat(scenario.change):
        split_key(key)
    return scenario


def _kind(heads: Iterable[str]) -> type[Scenario]:
    """What a document with these keys asks."""
    if "sharing" in heads:
        return SharingScenario
    return RecordedScenario if "record" in heads else Scenario


def _refuse_whole_job(document: Mapping[str, Any], where: str) -> None:
    """Refuse beside `[sharing]` what only a step of the whole job takes notice of."""
    for key in ("checkpoints", "jitter"):
        if key in document:
            what = f"{key} beside [sharing]: workers that share updates take no notice of it"
            instead = "write [[sharing.straggler]]" if key == "jitter" else f"leave {key} out"
            raise InputError(where, what, f"{instead}, or leave [sharing] out")


def _apply(document: dict[str, Any], key: str, value: Any, kind: type[Scenario]) -> None:
    where = f"setting {key}"
    if hasattr(value, "item"):
        value = value.item()  # a numpy scalar, as loops over np.arange give it
    key, changes = _owner(key, kind)
    if changes:
        earlier = document.get("change", {})
        if not isinstance(earlier, Mapping):
            raise InputError("change", f"{gate.shown(earlier)} is no table", "write [change]")
        document["change"] = {**dict(flat(earlier)), key: value}
    else:
        put(document, key, value, where)


def _owner(key: str, kind: type[Scenario]) -> tuple[str, bool]:
    """The key that a setting is of, and whether it changes a file that the scenario names."""
    where, head = f"setting {key}", head_of(key)
    if key == "device":
        key, head = "topology.device", "topology"
    known = dict.fromkeys([*(f.name for f in fields(kind)), *FILES, "sharing"])
    tables = [name for name, own in _TABLES.items() if head in (f.name for f in fields(own))]
    if head not in known and tables:
        near = " or ".join(f"'{name}.{key}'" for name in tables)
        raise InputError(where, f"unknown key {key!r}", f"did you mean {near}?")
    if head not in known:
        raise InputError(where, f"unknown key {key!r}", nearest(head, list(known)))
    return key, "." in key and head not in ("plan", "jitter", "sharing", "checkpoints")


def name_of(given: str | Transformer | Stack | Topology) -> str:
    """What a file, or what it stands for, is called."""
    return given if isinstance(given, str) else given.name
