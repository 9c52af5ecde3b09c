"""The controls of a scenario: its values by dotted key, and how each is changed on the page.

The keys of `GROUPS`, which most questions concern, come first, as far as a scenario has them. Then
come controls for the tables that the scenario's kind adds. All controls follow from the dataclasses
that validate files, so a new field has a control without a change here.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from math import log2
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from sim.config import catalog
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.schema import Tagged, annotations_of
from sim.config.units import Ge, Le, Unit
from sim.model import optimizers
from sim.parallel import schedule as schedules
from sim.scenario.scenario import BaseScenario
from sim.scenario.setting_texts import value_of
from sim.scenario.setup import load_model, load_topology

_Loaded = TypeVar("_Loaded")
Form = Literal["choice", "number", "switch", "text", "slow"]
SLIDERS: tuple[Form, ...] = ("number", "text")

GROUPS: Mapping[str, Sequence[str]] = {
    "Model": ("model", "model.seq"),
    "Cluster": ("topology", "gpus", "device", "device.memory", "network.bandwidth",
                "network.latency", "topology.price.hour"),
    "Software": ("stack", "plan.precision", "plan.optimizer", "plan.moments"),
    "Layout": ("plan.global_batch", "plan.microbatch", "plan.tp", "plan.pp", "plan.cp", "plan.ep",
               "plan.etp", "plan.dp", "plan.dp_replicate", "plan.zero", "plan.schedule",
               "plan.interleave", "plan.recompute", "plan.sequence_parallel",
               "plan.offload.optimizer", "plan.offload.activations"),
    "Stragglers": ("straggler",),
}  # fmt: skip
MORE = "More of the plan"
_LABELS = {
    "model": "model", "model.seq": "sequence length", "topology": "cluster", "gpus": "GPUs",
    "device": "device", "device.memory": "GPU memory", "network.bandwidth": "NIC bandwidth",
    "network.latency": "latency", "topology.price.hour": "price per GPU",
    "stack": "software", "plan.precision": "precision", "plan.optimizer": "optimizer",
    "plan.moments": "moments in", "plan.global_batch": "global batch",
    "plan.microbatch": "microbatch", "plan.tp": "tensor (tp)",
    "plan.pp": "pipeline (pp)", "plan.cp": "context (cp)",
    "plan.ep": "experts (ep)", "plan.etp": "experts' tp (etp)",
    "plan.dp": "data (dp)", "plan.dp_replicate": "ZeRO replicas",
    "plan.zero": "ZeRO stage", "plan.schedule": "pipeline schedule",
    "plan.interleave": "chunks a stage", "plan.recompute": "recomputation",
    "plan.sequence_parallel": "sequence parallel", "plan.offload.optimizer": "optimizer on host",
    "plan.offload.activations": "activations on host",
    "plan.offload.parameters": "parameters on host", "straggler": "slow parts",
}  # fmt: skip
_HINTS = {"plan.dp": "the rest", "gpus": "all", "topology.price.hour": "2 USD/h"}
_UNOFFERED = ("name", "description", "record", "plan.order")  # keys without a control


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """The control of a key. `value` is a text for `--set` (empty: not given). `choices` are values
    to choose from; for a number they are the stops of a slider. A value that was `refused` stays,
    for the user to correct it."""

    key: str
    label: str
    form: Form
    value: str = ""
    choices: tuple[str, ...] = ()
    hint: str = ""
    refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Controls under a title; `closed` groups show only the title at first."""

    title: str
    controls: tuple[Control, ...]
    closed: bool = False


class _Parts:
    """A scenario with the files that it names. Each file is loaded once, and is None if loading
    fails."""

    def __init__(self, scenario: BaseScenario) -> None:
        self.scenario = scenario
        self.loaded: dict[str, Any] = {}

    def of(self, head: str) -> Any:
        """Return the object that has the keys below `head`, such as the device for "device"."""
        if head in ("network", "node", "host", "storage", "device"):
            return getattr(self.of("topology"), head, None)
        if head in _LOADERS:
            if head not in self.loaded:
                self.loaded[head] = tried(partial(_LOADERS[head], self.scenario))
            return self.loaded[head]
        return getattr(self.scenario, head, None)


_LOADERS: Mapping[str, Callable[[BaseScenario], Any]] = {
    "topology": load_topology,
    "model": load_model,
}


def tried(load: Callable[[], _Loaded]) -> _Loaded | None:
    """Return what is loaded; None if that fails with an `InputError`."""
    try:
        return load()
    except InputError:
        return None


def readable(scenario: BaseScenario) -> bool:
    """Whether the files that a scenario names can be read, with the scenario's changes."""
    parts = _Parts(scenario)
    named = (head for head in _LOADERS if getattr(scenario, head, None) is not None)
    return all(parts.of(head) is not None for head in named)


def refused(control: Control, text: str) -> Control:
    """Return a control with the text that was refused."""
    given = value_of(text)
    if control.form == "slow":
        rows = given if isinstance(given, list) else []
        text = json.dumps([row for row in rows if isinstance(row, dict)])
    return replace(control, value=text, refused=True)


def groups(scenario: BaseScenario) -> tuple[Group, ...]:
    """Return all controls of a scenario, in groups."""
    parts = _Parts(scenario)
    found = [
        Group(title=title, controls=tuple(filter(None, (_named(parts, key) for key in keys))))
        for title, keys in GROUPS.items()
    ]
    found += _of_kind(scenario)
    if is_dataclass(plan := getattr(scenario, "plan", None)):
        shown = {key for keys in GROUPS.values() for key in keys}
        rest = [control for control in _fields("plan", plan) if control.key not in shown]
        found.append(Group(title=MORE, controls=tuple(rest), closed=True))
    return tuple(group for group in found if group.controls)


def _named(parts: _Parts, key: str) -> Control | None:
    """Return the control of a key, or None if the scenario does not have the key."""
    head, _, rest = key.partition(".")
    if key == "straggler":
        return Control(key=key, label=_LABELS[key], form="slow", value=_slow(parts.scenario))
    if key == "device":
        device = getattr(parts.of("topology"), "device", None)
        if device is None:
            return None
        file = tried(partial(catalog.find, "topologies/devices", device.name))
        return _control(key, str, file.stem if file else "")
    found = _found(parts.of(head) if rest else parts.scenario, (rest or key).split("."))
    return None if found is None else _control(key, *found)


def _found(thing: Any, names: Sequence[str]) -> tuple[Any, Any] | None:
    """Return the annotation and the value at a path of fields, or None if a field does not exist.
    Fields of a table that is not given have the value None."""
    kind, hint = type(thing), None
    for name in names:
        hint = annotations_of(kind).get(name) if is_dataclass(kind) else None
        if hint is None:
            return None
        thing = getattr(thing, name, None)
        kind = _table(hint) if thing is None else type(thing)
    return hint, thing


def _slow(scenario: BaseScenario) -> str:
    rows = [
        {field.name: getattr(row, field.name) for field in fields(row) if getattr(row, field.name)
         is not None} for row in scenario.straggler
    ]  # fmt: skip
    return json.dumps(rows) if rows else ""


def _of_kind(scenario: BaseScenario) -> Iterator[Group]:
    """Yield the controls of tables that only this kind of scenario has."""
    ours = {field.name for field in fields(BaseScenario)} | {"plan"}
    for field in fields(scenario):
        if field.name in ours or field.name in _UNOFFERED:
            continue
        value, hint = getattr(scenario, field.name), annotations_of(type(scenario))[field.name]
        if is_dataclass(value):
            yield Group(
                title=field.name.capitalize(), controls=(*_fields(field.name, value, hint),)
            )
        elif control := _control(field.name, hint, value):
            yield Group(title=field.name.capitalize(), controls=(control,), closed=True)


def _fields(table: str, thing: Any, hint: Any = None) -> Iterator[Control]:
    """Yield the controls of a table's plain values, also of tables inside it."""
    tagged = next(iter(_marks(hint, Tagged)), None)
    for field in fields(thing):
        key, value = f"{table}.{field.name}", getattr(thing, field.name)
        if not field.init or key in _UNOFFERED:
            continue
        annotation = annotations_of(thing.__class__)[field.name]
        if tagged is not None and field.name == tagged.tag:
            yield Control(key=key, label=_label(key), form="choice", value=str(value),
                          choices=tuple(tagged.choices))  # fmt: skip
        elif is_dataclass(value) and not isinstance(value, type):
            yield from _fields(key, value, annotation)
        elif control := _control(key, annotation, value):
            yield control


def _control(key: str, hint: Any, value: Any) -> Control | None:
    """Return the control of a key by the annotation of its field; None for tables and lists."""
    control = partial(Control, key=key, label=_label(key), hint=_HINTS.get(key, ""))
    names = _NAMES.get(key)
    if names is not None:
        given = value if isinstance(value, str) else ""
        choices = names() if given in names() else (given, *names())
        return control(form="choice", value=given, choices=choices)
    if unit := next(iter(_marks(hint, Unit)), None):
        text = "" if value is None else _quantity(value, unit.symbol)
        return control(form="text", value=text, choices=_factors(value, unit.symbol))
    kinds = [kind for kind in _plain(hint) if kind is not NoneType]
    optional = NoneType in _plain(hint)
    if not kinds or isinstance(value, tuple | Mapping) or is_dataclass(value):
        return None
    if all(not isinstance(kind, type) for kind in kinds):
        choices = ("",) * optional + tuple(map(_text, kinds))
        return control(form="choice", value=_text(value), choices=choices)
    if kinds == [bool]:
        words = ("",) * optional + ("true", "false")
        form: Form = "choice" if optional else "switch"
        return control(form=form, value=_text(value), choices=words)
    if set(kinds) <= {int, float}:
        return control(form="number", value=_text(value), choices=_steps(hint, value))
    return control(form="text", value=_text(value))


def _label(key: str) -> str:
    return _LABELS.get(key) or re.sub(r"[._]", " ", key.partition(".")[2]) or key


def _text(value: Any) -> str:
    """Return a value as a text for `--set`."""
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else f"{value:.10g}" if isinstance(value, float) else str(value)


def _table(hint: Any) -> Any:
    return next((part for part in get_args(hint) if is_dataclass(part)), None)


def _marks(hint: Any, kind: type) -> Iterator[Any]:
    """Yield the marks of a type in an annotation such as `Annotated[float, Unit("B")] | None`."""
    if isinstance(hint, kind):
        yield hint
    for part in get_args(hint):
        yield from _marks(part, kind)


def _plain(hint: Any) -> list[Any]:
    """Return the plain types and the words that an annotation admits, NoneType included. Tables and
    lists are left out."""
    if get_origin(hint) is Annotated:
        return _plain(get_args(hint)[0])
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    if get_origin(hint) in (Union, UnionType):
        return [kind for part in get_args(hint) for kind in _plain(part)]
    return [hint] if hint in (bool, int, float, str, NoneType) else []


_LEAST = 8  # a slider reaches at least this power of two


def _steps(hint: Any, value: Any) -> tuple[str, ...]:
    """Return the stops of a slider: powers of two for a whole number, quarters for a share, or 0 to
    3 for a small number. Other numbers have no stops."""
    most = min((mark.le for mark in _marks(hint, Le)), default=None)
    least = max((mark.ge for mark in _marks(hint, Ge)), default=None)
    if most == 1:
        return _sorted({0.0, 0.25, 0.5, 0.75, 1.0, *([value] if value is not None else [])})
    if int not in _plain(hint) or not isinstance(value, int | NoneType):
        return ()
    if least == 0 and (value or 0) <= 3:
        return ("0", "1", "2", "3")
    powers = max(_LEAST, int(log2(max(value or 1, 1))) + 2)
    return _sorted({*(2**power for power in range(powers + 1)), *([value] if value else [])})


def _sorted(values: set[Any]) -> tuple[str, ...]:
    return tuple(f"{value:.10g}" for value in sorted(values))


_SCALES = {
    "B": ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (1.0, "B")),
    "B/s": ((1.25e8, "Gb/s"), (1.0, "B/s")),
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")),
    "FLOP/s": ((1e12, "TFLOP/s"), (1.0, "FLOP/s")),
    "Hz": ((1e9, "GHz"), (1.0, "Hz")),
    "W": ((1.0, "W"),),
    "USD/h": ((1.0, "USD/h"),),
    "USD/J": ((1.0 / 3.6e6, "USD/kWh"),),
}


def _quantity(value: float, unit: str) -> str:
    """Return a quantity with a unit, as in files.

    >>> _quantity(5e10, "B/s"), _quantity(2e-6, "s"), _quantity(80 * 2**30, "B")
    ('400 Gb/s', '2 us', '80 GiB')
    """
    scale, symbol = next((pair for pair in _SCALES[unit] if value >= pair[0]), _SCALES[unit][-1])
    return f"{value / scale:.6g} {symbol}"


_TIMES = (0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0, 8.0)


def _factors(value: float | None, unit: str) -> tuple[str, ...]:
    return tuple(_quantity(value * times, unit) for times in _TIMES) if value else ()


_NAMES: Mapping[str, Callable[[], tuple[str, ...]]] = {
    "model": lambda: tuple(catalog.names("models")),
    "topology": lambda: tuple(catalog.names("topologies")),
    "stack": lambda: tuple(catalog.names("topologies/stacks")),
    "device": lambda: tuple(catalog.names("topologies/devices")),
    "plan.schedule": lambda: tuple(sorted(schedules.table())),
    "plan.optimizer": lambda: tuple(sorted(optimizers.OPTIMIZERS)),
    "plan.recompute": lambda: ("none", "selective", "full"),
    "plan.recipe": lambda: ("", *catalog.names("topologies/recipes")),
}
