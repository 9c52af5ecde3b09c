"""Read the texts of frameworks into the tables of a scenario, and write them from the tables."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, field, fields, is_dataclass, replace
from math import prod
from typing import Any

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.silent import is_silent
from sim.hardware import stack as stacks
from sim.hardware.cluster.topology import Topology
from sim.hardware.stack import Stack, capabilities_of
from sim.interface.frameworks import accelerate, deepspeed, loops, nanotron, starting, torchtitan
from sim.interface.frameworks.arguments import Entry, Flag, Given, read, told, write
from sim.interface.frameworks.framework import Base, Framework
from sim.interface.frameworks.megatron import recipes
from sim.interface.frameworks.megatron import table as megatron
from sim.interface.frameworks.shell import unsure
from sim.model.model import Model, Numerics
from sim.model.transformer import Transformer
from sim.parallel.plan import Plan
from sim.scenario.settings import changed

FRAMEWORKS = {
    "megatron": megatron.FRAMEWORK,
    "megatron-bridge": recipes.BRIDGE,
    "nemo": recipes.NEMO,
    "torchtitan": torchtitan.FRAMEWORK,
    "nanotron": nanotron.FRAMEWORK,
    "deepspeed": deepspeed.FRAMEWORK,
    "accelerate": accelerate.FRAMEWORK,
}
_MODEL = ("model.name",)  # arguments that are not needed if the caller names a model
_BY_SCRIPT = ("deepspeed", "accelerate")  # frameworks whose texts do not describe the model
LOOPS = {"nemo-rl": loops.NEMO_RL, "verl": loops.VERL}
_OF_A_JOB = ("model", "plan", "stack", "gpus", "often", "software")


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The tables `model` and `plan`, and the `changes` of the `stack`, that arguments stand for.
    `unknown` are arguments that are not known; `silent` counts the arguments that do not concern a
    step. `gpus` is 0 if unknown. `further` are tables of a kind of jobs, such as `reinforcement`.
    `model` is empty if the framework does not describe the model. If the text changes a named model
    (`called`), `model` has the changed keys, and also `like` with our name if the model is known.
    """

    model: dict[str, Any]
    plan: dict[str, Any]
    stack: str
    changes: dict[str, Any]
    unknown: tuple[str, ...]
    silent: int
    gpus: int = 0
    called: str = ""
    notes: tuple[str, ...] = ()
    further: dict[str, Any] = field(default_factory=dict)


def imported(name: str, text: str, gpus: int = 0, model: str = "") -> Imported:
    """Return the job that a text of a framework describes. `gpus` is its number of GPUs (0: the
    text's own number). If `model` is given, the text need not name its model.

    Raises `InputError` for an unknown framework, for unknown values, or if no model is named.
    """
    framework = importer_of(name)
    given, table = framework.parse(text), framework.table
    _refuse_unsure(table, given)
    known = {argument for entry in table for argument in entry.arguments}
    rest = [argument for argument in given if argument not in known.union(framework.assumed)]
    silent = [argument for argument in rest if is_silent(argument, framework.silent)]
    base = Base()
    if model and framework.needs in _MODEL:
        table = tuple(entry for entry in table if framework.needs not in entry.arguments)
    elif framework.needs and framework.needs not in given:
        base, table = framework.base(given), tuple(told(table, given))
        if not base.called:
            fault = f"argument {framework.needs} is missing"
            raise InputError(name, fault, "give all that the job is started with")
    gpus = gpus or _gpus(given)
    keys = framework.completed(read(table, given), gpus)
    job = changed({}, keys, name)
    return Imported(
        model={"like": base.like, **job.get("model", {})} if base.like else job.get("model", {}),
        plan=job.get("plan", {}),
        stack=job.get("software", framework.stack),
        changes=job.get("stack", {}),
        unknown=tuple(
            argument
            for argument in rest
            if argument not in silent and given[argument] != ("false",)
        ),
        silent=len(silent),
        gpus=gpus or job.get("gpus", 0),
        called=base.called,
        notes=base.notes,
        further={key: table for key, table in job.items() if key not in _OF_A_JOB},
    )


def importer_of(name: str) -> Framework:
    """Return the framework or RL loop of this name, whose texts can be read. Raises
    `InputError`."""
    return LOOPS[name] if name in LOOPS else framework_of(name)


def framework_of(name: str) -> Framework:
    """Return the framework of this name. Raises `InputError`."""
    if name not in FRAMEWORKS:
        raise InputError.unknown(name, "is no framework that is known", name, [*FRAMEWORKS])
    return FRAMEWORKS[name]


def _gpus(given: Given) -> int:
    """Return the number of ranks that torchrun starts; 0 without torchrun. Raises `InputError`."""
    if "nproc-per-node" not in given:
        return 0
    counts = {name: given.get(name, ("1",))[:1] for name in ("nnodes", "nproc-per-node")}
    for name, words in counts.items():
        if not words or not words[0].isdecimal():
            fault = f"{' '.join(words) or 'nothing'} is no number"
            raise InputError(f"argument {name}", fault, "--gpus says how many GPUs there are")
    return prod(int(words[0]) for words in counts.values())


def _refuse_unsure(table: Iterable[Entry], given: Given) -> None:
    """Raise `InputError` if an unknown value follows a flag, as it may hold further arguments."""
    for entry in table:
        for name in entry.arguments if isinstance(entry, Flag) else ():
            if unknown := [word for word in given.get(name, ()) if unsure(word)]:
                fault = f"{unknown[0]} is not known"
                raise InputError(f"argument {name}", fault, "write what it stands for")


class _Read(dict[str, Any]):
    """A table of keys that remembers which keys were read."""

    def __init__(self, keys: Mapping[str, Any]) -> None:
        super().__init__(keys)
        self.read = set[str]()

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.read.add(key)
        return super().get(key, default)


def emitted(
    name: str,
    model: Model,
    plan: Plan,
    like: str = "",
    cluster: Topology | None = None,
    stack: Stack | None = None,
) -> tuple[str, list[str]]:
    """Return a framework's text for a model and a plan, and the values that no argument expresses.

    `like` is the name of the model's file; the plan's `dp` must be known. A script starts the job
    on the `cluster`. Arguments that came after the release of a `stack` of the same framework are
    not written. The name "toml" gives the `[plan]` table of a scenario. Raises `InputError`
    if the framework does not support the model or the plan.
    """
    if name == "toml":
        return plan_table(plan), []
    framework = framework_of(name)
    keys = _Read({"model.kinds": model.kinds, "ranks": plan.data_parallel})
    keys.update({f"model.{key.name}": getattr(model, key.name, key.default)
                 for key in fields(Transformer)})  # fmt: skip
    keys.update({f"plan.{key.name}": getattr(plan, key.name) for key in fields(Plan)})
    keys.update({f"{_NUMERICS}.{key.name}": getattr(model.numerics, key.name)
                 for key in fields(Numerics)})  # fmt: skip
    keys["model.biases"] = [*keys["model.biases"]]
    keys["model.like"] = like
    keys["stack.overlap_gradients"] = plan.data_parallel > 1
    keys["stack.overlap_gather"] = plan.data_parallel > 1 and plan.zero > 0
    try:
        words = write(framework.table, keys)
    except InputError as error:
        if not error.where.startswith("model"):
            raise
        remedy = f"{error.remedy}, or emit {' or '.join(_BY_SCRIPT)}, whose script makes the model"
        raise InputError(error.where, error.what, remedy) from None
    usual = Plan(global_batch=plan.global_batch, dp=plan.dp, axes=plan.axes)
    unsaid = _unsaid(
        "plan", plan, {key.name: getattr(usual, key.name) for key in fields(Plan)}, keys
    )
    if "model.layers" in keys.read:
        plain = {key.name: key.default for key in fields(Transformer) if key.name not in _DERIVED}
        unsaid += _unsaid("model", model, plain, keys)
        plain = {key.name: None for key in fields(Numerics)} | {"rope_scaling": {}}
        unsaid += _unsaid(_NUMERICS, model.numerics, plain, keys)
        if keys["model.positions"] == "rotary" and model.numerics.rope_theta is None:
            unsaid.append("rope_theta, which the model's file does not give")
    elif framework.needs and framework.needs not in words:
        unsaid.insert(0, f"the model, {like or model.name}: write its part by hand")
    late = _late(framework, words, stack)
    unsaid += [f"{word} = {' '.join(words[word])}: {why}" for word, why in late.items()]
    text = framework.render({word: values for word, values in words.items() if word not in late})
    if framework.script:
        generation = cluster.device.generation if cluster else ""
        sizes = (cluster.gpus, cluster.gpus_per_node) if cluster else (0, 0)
        environment = framework.environment(plan, generation)
        text = starting.script(text, framework.script, environment, *sizes)
    return text, unsaid


_NUMERICS = "model.numerics"
# Keys of a model that follow from other keys, or that do not concern its shape.
_DERIVED = (
    *("name", "family", "pattern", "blocks", "notes", "numerics"),
    *("head", "kv_heads", "value_head"),
)


def _late(framework: Framework, words: Iterable[str], stack: Stack | None) -> dict[str, str]:
    """Return the arguments that came after the release of a stack of this framework, and why."""
    if stack is None or stack.framework != stacks.load(framework.stack).framework:
        return {}
    known = capabilities_of(stack.framework, where=stack.name)
    whys = {word: known.lacks("argument", word, stack.released) for word in words}
    return {word: why for word, why in whys.items() if why}


def _unsaid(
    table: str, given: Plan | Model | Numerics, usual: Mapping[str, Any], keys: _Read
) -> list[str]:
    """Return values that differ from `usual` and that no entry of the framework has read."""
    return [
        f"{name} = {getattr(given, name)}"
        for name, value in usual.items()
        if f"{table}.{name}" not in keys.read and getattr(given, name, value) != value
    ]


def searched(name: str) -> tuple[str, ...]:
    """Return the choices that a framework supports, written as for `sim plan --only`. Raises
    `InputError`."""
    return () if name in ("", "toml") else framework_of(name).search


def stack_of(name: str) -> str | None:
    """Return the stack by which jobs of a framework are predicted, None for "" and "toml". Raises
    `InputError`."""
    return None if name in ("", "toml") else framework_of(name).stack


def foreign(name: str, stack: Stack) -> str:
    """Return a warning if the `stack` of a prediction is neither the framework's own stack nor a
    release of it; otherwise "". Raises `InputError`."""
    stack_name = stack_of(name)
    if stack_name is None:
        return ""
    theirs = stacks.load(stack_name)
    if theirs.name == stack.name or (theirs.framework and theirs.framework == stack.framework):
        return ""
    return f"predicted with {stack.name}; {name} runs it as {theirs.name} (stack {stack_name!r})"


def start(name: str, plan: Plan, cluster: Topology) -> str:
    """Say how to start the framework's program with the emitted text on each node of a cluster; ""
    if `name` is no framework."""
    if name not in FRAMEWORKS:
        return ""
    framework = FRAMEWORKS[name]
    environment = framework.environment(plan, cluster.device.generation)
    return starting.told(framework, environment, cluster.gpus, cluster.gpus_per_node)


def plan_table(plan: Plan) -> str:
    """Return the `[plan]` table of a scenario as TOML, without keys at their defaults.

    >>> print(plan_table(Plan(global_batch=64, tp=2)).strip())
    [plan]
    global_batch = 64
    tp = 2
    """
    import tomli_w

    return tomli_w.dumps({"plan": plan_of(plan)})


def plan_of(plan: Plan) -> dict[str, Any]:
    """Return the `[plan]` table of a scenario as plain values, without keys at their defaults."""
    plan = replace(plan, axes={axis: size for axis, size in plan.axes.items() if size > 1})
    usual = Plan(global_batch=1)
    said: dict[str, Any] = _plain(
        {
            key.name: value
            for key in fields(Plan)
            if (value := getattr(plan, key.name)) != getattr(usual, key.name)
        }
    )
    return said


def _plain(value: Any) -> Any:
    """Return dataclasses as tables and tuples as lists; leave out None."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items() if entry is not None}
    return [_plain(entry) for entry in value] if isinstance(value, tuple) else value
