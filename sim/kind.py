"""Kinds of scenarios: the contract between scenario files and questions about them.

A kind is a module. `sim.simulate` is the kind of jobs that a plan lays out. Each folder of
`sim.jobs` with `KEYS` is a further kind, and so is each installed package with an entry point of
the group `sim.jobs`. Code that asks questions (`sim.questions`) knows this contract and no kind.

A document with one of a folder's `KEYS` is of the folder's kind. So is a file whose name the
folder's function `claims` accepts, if it has one. The folder's module `kind` has

- `SCENARIO`, the class (a `BaseScenario`) into which a document is read;
- `ANSWER`, the class of its answers (a `JobAnswer`): `view` names the module that prints an
  answer, `columns` are the figures of a sweep's rows;
- `set_up(scenario, task=, brief=)`: resolves names and refuses values that do not fit together;
  `brief` leaves out data that only pictures need. A setup has `name`, `machine`, `columns`, and
  `job`, which is None without a plan. The attribute `kind` of a scenario and of a setup is the name
  of this module. A setup may tell its `effort` (seconds that its play takes on a core), and must
  do so if it has no program;
- `answer(setup, engine=, unfold=)`: plays a setup and returns its answer;
- optionally `pace(setup)`: the seconds of a unit of work, from which goodput, cost and deadlines
  follow;
- optionally `speeds` (the step time with resources faster or slower) and `kernels` (the kernels of
  each stage, with their calls). `sim explain` asks for both if the kind's answer is a `Result`;
- optionally `advice` (changes of a script, `sim.results.by_line`), which `--advise` tries, and
  `moves` (other worlds, batches and shardings of a recorded step), which `sim plan` ranks;
- optionally `together(setups)`: the `Figures` of the setups that are cheaper to play together, by
  their places in `setups`;
- optionally `traffic` (bytes on each link, for a setup whose `program` raises `InputError`);
- optionally `by_line` (seconds and memory by line of a script), `seeded` (the scenario with another
  seed, None if it draws nothing) and `document` (the document of a claimed file);
- optionally `QUESTIONS`, the name of a module with the functions above that no answer needs;
- `LACKS`, the error message for a missing function: its fault and its remedy.

A folder itself may have `adopt`, which adds a user's Python file and returns settings that use it.
"""

import copy
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar, Protocol, cast

from sim.config import catalog, gate
from sim.config.errors import InputError
from sim.config.plugins import modules
from sim.config.schema import annotations_of, tagged_in
from sim.engine.machine import Machine
from sim.engine.play import Engine
from sim.hardware.cluster.topology import Topology
from sim.parallel.job import Job
from sim.program.program import Program
from sim.results.answer import JobAnswer
from sim.scenario.scenario import BaseScenario, ClusterScenario, Scenario, name_of
from sim.scenario.settings import (
    FILES,
    Settings,
    flat,
    head_of,
    in_table,
    put,
    settings_of,
    split_key,
)


class Setup(Protocol):
    """A scenario that is ready to be played. `job` is None unless a plan lays out the job;
    `columns` are the cells that describe the setup in the table of a sweep."""

    kind: ClassVar[str]

    @property
    def name(self) -> str: ...
    @property
    def machine(self) -> Machine: ...
    @property
    def job(self) -> Job | None: ...
    @property
    def program(self) -> Program: ...
    @property
    def columns(self) -> dict[str, Any]: ...


class WithoutProgram:
    """A base class of setups without a plan, whose work is not a program that repeats."""

    job: ClassVar[None] = None

    @property
    def program(self: Setup) -> Program:
        """Raises `InputError`: nobody knows the work before it is done."""
        raise InputError(self.name, *module_of(self).LACKS)


def set_up(scenario: BaseScenario, *, task: Any = None, brief: bool = False) -> Setup:
    """Resolves a scenario's names and refuses values that do not fit together. `task` is what
    workers of shared updates learn; `brief` leaves out data that only pictures need. Raises
    `InputError`."""
    return cast(Setup, module_of(scenario).set_up(scenario, task=task, brief=brief))


def answer(setup: Setup, *, engine: Engine = "auto", unfold: bool = False) -> JobAnswer:
    """Plays a setup and returns its answer. Raises `InputError`."""
    return cast(JobAnswer, module_of(setup).answer(setup, engine=engine, unfold=unfold))


def module_of(thing: BaseScenario | Setup) -> ModuleType:
    return import_module(thing.kind)


# --- The kind of a document -----------------------------------------------------------------------


def claims(name: str) -> bool:
    """Whether a name is a file that a kind claims, such as a recording, which names no cluster."""
    return _claiming(name) is not None


def _claiming(name: str) -> ModuleType | None:
    """The folder of the kind that claims a file's name, or None. A TOML file is a scenario, which
    no kind claims. Installed packages are loaded only for a name that no folder of `sim.jobs`
    claims and no scenario has."""
    known = catalog.found("scenarios", name)
    if known is not None and known.suffix == ".toml":
        return None
    folder = next((folder for folder in ours() if _claims(folder, name)), None)
    if folder is not None or known is not None:
        return folder
    return next((folder for folder in _foreign() if _claims(folder, name)), None)


def _claims(folder: ModuleType, name: str) -> bool:
    return hasattr(folder, "claims") and bool(folder.claims(name))


def folders() -> Iterator[ModuleType]:
    """Yields the folders of all kinds except jobs of a plan; installed packages come last."""
    yield from ours()
    yield from _foreign()


def ours() -> Iterator[ModuleType]:
    return (folder for folder in modules("sim.jobs").values() if hasattr(folder, "KEYS"))


@cache
def _foreign() -> tuple[ModuleType, ...]:
    from importlib.metadata import entry_points  # takes long to load, and few files need it

    return tuple(found.load() for found in entry_points(group="sim.jobs"))


def home_of(folder: ModuleType) -> str:
    return f"{folder.__name__}.kind"


def folder_of(keys: Iterable[str]) -> ModuleType | None:
    """The folder of the kind of documents with these keys; None for jobs of a plan."""
    return next((folder for folder in folders() if not set(folder.KEYS).isdisjoint(keys)), None)


def _scenario_class(keys: Iterable[str]) -> type[BaseScenario]:
    """The scenario class for a document with these keys, some of which may be misspelt."""
    keys = set(keys)
    if keys <= {field.name for field in fields(Scenario)}:
        return Scenario
    from sim.config.near import meant as close

    found = folder_of(keys)
    unknown = keys - {field.name for field in fields(Scenario)}
    meant = (f for f in folders() if any(close(key, f.KEYS) for key in unknown))  # misspelt
    folder = found or next(meant, None)
    return Scenario if folder is None else import_module(home_of(folder)).SCENARIO


# --- From files to scenarios ----------------------------------------------------------------------

_OF_CLUSTER = ("straggler", "topology", "network", "node", "device", "host")


def load(given: str | os.PathLike[str] | BaseScenario, settings: Settings = ()) -> BaseScenario:
    """The scenario of a name or path, or a given scenario, with settings applied. Settings are
    `key=value` texts or a mapping. A file that a kind claims needs settings that name the topology.

    Raises `InputError` for an unknown name, an unknown key or a value out of range.

    >>> load("gpt3-175b-megatron", {"plan.tp": 4, "network.bandwidth": "100 Gb/s"}).change
    {'network.bandwidth': '100 Gb/s'}
    """
    if isinstance(given, BaseScenario):
        return _changed(given, settings_of(settings))
    try:
        name = os.fspath(given)
    except TypeError:
        fault = f"{gate.shown(given)} is no scenario"
        remedy = 'give a name such as "gpt3-175b-megatron", or a Scenario'
        raise InputError("scenario", fault, remedy) from None
    return described(*_read(name, settings))


def document(given: str | Mapping[str, Any], settings: Settings = ()) -> dict[str, Any]:
    """The document of a scenario's name or path, or a given document, with settings applied. A file
    with this document describes the same scenario. Raises `InputError`.

    >>> document("gpt3-175b-megatron", "network.bandwidth=100 Gb/s")["change"]
    {'network.bandwidth': '100 Gb/s'}
    """
    if isinstance(given, str):
        read, settings, _ = _read(given, settings)
    else:
        read = copy.deepcopy(dict(given))
    _put_all(read, settings)
    return read


def _read(name: str, settings: Settings) -> tuple[dict[str, Any], Settings, str]:
    """A name's document, the settings still to be applied, and its name in messages."""
    if (folder := _claiming(name)) is not None:
        changes = settings_of(settings)
        return import_module(home_of(folder)).document(name, changes), changes, name
    path = catalog.find("scenarios", name)
    return {"name": path.stem, **catalog.read(path)}, settings, catalog.place(path)


def _put_all(
    document: dict[str, Any], settings: Settings, given: type[BaseScenario] | None = None
) -> type[BaseScenario]:
    """Put settings into a document, and return the class of the scenario that it then describes. A
    `given` class is kept if it has the keys of all settings."""
    changes = settings_of(settings)
    heads = {head_of(key) for key in changes}
    known = heads <= {*FILES, *(annotations_of(given).written if given else ())}
    kind = given if given and known else _scenario_class({*document, *heads.difference(FILES)})
    right = _scenario_class(document)
    if document.keys() & annotations_of(right).written.keys() - annotations_of(kind).written.keys():
        kind = right  # settings of another kind, which `_owner` refuses
    for name, field in annotations_of(kind).written.items():
        tagged, table = tagged_in(field), document.get(name)
        if tagged is None:
            continue
        if isinstance(table, dict) and tagged.tag in table:
            document[name] = {**table, tagged.tag: tagged.named(table[tagged.tag])}
        if (key := f"{name}.{tagged.tag}") in changes:
            changes[key] = tagged.named(changes[key])
    if changes:
        from sim.config.choices import chosen_anew
    for key, value in changes.items():
        chosen_anew(kind, document, key, value)
    for key, value in changes.items():
        _apply(document, key, value, kind)
    return kind


def described(
    document: dict[str, Any],
    settings: Settings = (),
    where: str = "scenario",
) -> BaseScenario:
    """The scenario that a document describes, with settings applied. Raises `InputError`.

    >>> job = {"model": "llama3-8b", "topology": "dgx-h100-ndr", "plan": {"global_batch": 64}}
    >>> described(job, "plan.tp=2").plan.tp
    2
    """
    return _made(document, _put_all(document, settings), where)


def _made(document: dict[str, Any], kind: type[BaseScenario], where: str) -> BaseScenario:
    scenario = catalog.validate(document, kind, where)
    for key, _ in flat(scenario.change):
        split_key(key)
    return scenario


def cluster_scenario(
    topology: str | Topology, settings: Settings = (), gpus: int | None = None
) -> BaseScenario:
    """A scenario of a cluster alone. `settings` change the cluster or make parts of it slow, as in
    any scenario. Raises `InputError` for settings that do not concern a cluster."""
    changes = settings_of(settings)
    for key in changes:
        if head_of(key) not in _OF_CLUSTER:
            fault = f"a cluster alone has no {head_of(key)}"
            raise InputError(f"setting {key}", fault, f"set one of {', '.join(_OF_CLUSTER)}")
    return _changed(ClusterScenario(name=name_of(topology), topology=topology, gpus=gpus), changes)


def _changed(scenario: BaseScenario, settings: Mapping[str, Any]) -> BaseScenario:
    """A scenario object with settings applied, as to the document of a file."""
    if all("." in key and head_of(key) in FILES for key in settings):
        changed: dict[str, Any] = {"change": scenario.change}
        for key, value in settings.items():
            split_key(key)
            _apply(changed, key, value, type(scenario))
        return replace(scenario, **changed)
    from sim.config.as_table import table_of  # not needed for scenarios from files

    keys = [key for key in settings if head_of(key) not in FILES]
    document = table_of(scenario, keys)
    return _made(document, _put_all(document, settings, type(scenario)), scenario.name)


def _apply(document: dict[str, Any], key: str, value: Any, kind: type[BaseScenario]) -> None:
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


def _owner(key: str, kind: type[BaseScenario]) -> tuple[str, bool]:
    """The full key of a setting, and whether it changes a file that the scenario names."""
    where, head = f"setting {key}", head_of(key)
    if key == "device":
        key, head = "topology.device", "topology"
    keys = [field.name for field in fields(kind)]
    if head not in (*keys, *FILES):
        from sim.config.near import nearest

        if any(head in folder.KEYS for folder in folders()):
            fault = f"this scenario is of a kind that has no {head}"
            raise InputError(where, fault, f"name a scenario with {head} (`sim list`)")
        meant = in_table(key) or nearest(head, list(dict.fromkeys([*keys, *FILES])))
        raise InputError(where, f"unknown key {key!r}", meant)
    return key, "." in key and head in FILES
