"""A job in the words of a framework: read into the tables of a scenario, and written from them."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from typing import Any

from sim.config.errors import InputError
from sim.frameworks.arguments import read, write
from sim.frameworks.command_line import parsed, written
from sim.frameworks.megatron import table as megatron
from sim.model.transformer import Transformer
from sim.parallel.plan import Plan

FRAMEWORKS = ("megatron",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The tables `model`, `plan` and `stack` that arguments stand for, what of them is `unknown`,
    and how many say nothing of a step. `gpus` is 0 where the text does not say how many."""

    model: dict[str, Any]
    plan: dict[str, Any]
    stack: dict[str, Any]
    unknown: tuple[str, ...]
    silent: int
    gpus: int = 0


def imported(text: str) -> Imported:
    """The job that Megatron-LM's arguments describe, in a command line or a script.

    Raises `InputError` for values that are not known, or where there is no model.
    """
    given = parsed(text)
    known = {*megatron.arguments(), *megatron.ASSUMED}
    rest = [name for name in given if name not in known]
    silent = [name for name in rest if megatron.SILENT.fullmatch(name)]
    if "num-layers" not in given:
        raise InputError("arguments", "--num-layers is missing", "give a whole training command")
    keys = read(megatron.TABLE, given)
    tables = _nested(keys)
    return Imported(
        model=tables.get("model", {}),
        plan=tables.get("plan", {}),
        stack=tables.get("stack", {}),
        unknown=tuple(name for name in rest if name not in silent),
        silent=len(silent),
        gpus=_gpus(given),
    )


def _gpus(given: Mapping[str, tuple[str, ...]]) -> int:
    """As many as torchrun starts."""
    counts = [given.get(name, ("",))[:1] for name in ("nnodes", "nproc-per-node")]
    nodes, each = (int(one[0]) if one and one[0].isdigit() else 0 for one in counts)
    return max(nodes, 1) * each


def _nested(keys: Mapping[str, Any]) -> dict[str, Any]:
    tables: dict[str, Any] = {}
    for key, value in keys.items():
        *path, last = key.split(".")
        table = tables
        for step in path:
            table = table.setdefault(step, {})
        table[last] = value
    return tables


def plan_table(plan: Plan) -> str:
    """The `[plan]` table of a scenario, without what is so anyway.

    >>> print(plan_table(Plan(global_batch=64, tp=2)).strip())
    [plan]
    global_batch = 64
    tp = 2
    """
    import tomli_w

    plan = replace(plan, axes={axis: size for axis, size in plan.axes.items() if size > 1})
    usual = Plan(global_batch=1)
    said = {
        one.name: value
        for one in fields(Plan)
        if (value := getattr(plan, one.name)) != getattr(usual, one.name)
    }
    return tomli_w.dumps({"plan": _plain(said)})


def _plain(value: Any) -> Any:
    """Dataclasses as tables, tuples as lists, None left out."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {key: _plain(own) for key, own in value.items() if own is not None}
    return [_plain(own) for own in value] if isinstance(value, tuple) else value


def emitted(model: Transformer, plan: Plan) -> str:
    """The arguments of Megatron-LM that describe a model and a plan. Raises `InputError` for what
    it does not have."""
    keys: dict[str, Any] = {"model.kinds": model.kinds}
    keys |= {f"model.{one.name}": getattr(model, one.name) for one in fields(Transformer)}
    keys |= {f"plan.{one.name}": getattr(plan, one.name) for one in fields(Plan)}
    keys["model.biases"] = [*model.biases]
    keys["stack.overlap_gradients"] = keys["stack.overlap_gather"] = plan.data_parallel > 1
    return written(write(megatron.TABLE, keys))
