"""Laws of refusals: what a message proposes is accepted, and what is said to fit does."""

import random
import re
from typing import Any

from sim import run
from sim.config.errors import InputError
from sim.kind import load
from tests.campaign.job import Job

_CHANGED = ("model", "stack", "device", "network", "node")  # files that a scenario changes
_VALUE = r"(\"\w[\w-]*\"|'\w[\w-]*'|true|false|\d+(?:\.\d+)?)"
_SET = re.compile(rf"\b(\w+(?:\.\w+)*) (=|<=|>|to) {_VALUE}")
_OUT = re.compile(r"\bleave (?!it|both|them)(\w+(?:\.\w+)*) out")
_GPUS = re.compile(r"GPUs do not fill .*; use (\d+)")
_WHOLE = ("tp", "pp", "cp", "ep", "etp", "dp_replicate", "interleave", "microbatch", "global_batch")
_MISTAKES: dict[str, tuple[Any, ...]] = {
    **{f"plan.{key}": (1, 2, 3, 4, 5, 8, 16) for key in _WHOLE},
    "plan.zero": (0, 1, 2, 3),
    "plan.schedule": (
        "1f1b", "gpipe", "interleaved", "zb-h1", "zb-v", "dualpipe", "pipedream", "pipedream-2bw",
    ),
    "plan.recompute": ("none", "full", "selective"),
    "plan.recompute_method": ("uniform", "block"),
    "plan.recompute_layers": (1, 2, 64),
    "plan.sequence_parallel": (True, False),
    "plan.tp_comm_overlap": (True,),
    "plan.overlap_experts": (True,),
    "plan.precision": ("fp8", "fp16", "bf16", "fp4"),
    "plan.optimizer": ("adam", "sgd", "muon"),
    "plan.gradients": ({"kind": "powersgd", "rank": 4}, {"kind": "int8"}),
    "plan.activations": ({"kind": "int8"},),
    "plan.offload.activations": (0.5, 1.0),
    "plan.offload.parameters": (1.0,),
    "plan.offload.optimizer": (1.0,),
    "plan.lora.rank": (16,),
    "gpus": (7, 8, 12, 16),
}  # fmt: skip


def mistaken(job: Job, chance: random.Random) -> Job:
    """The job with one or two of its plan's keys set to what may not go with the others."""
    keys = chance.sample(sorted(_MISTAKES), chance.choice((1, 2)))
    return job.but({key: chance.choice(_MISTAKES[key]) for key in keys})


def proposed(error: InputError) -> tuple[str, Any] | None:
    """The first key and value that a message proposes; None is the value of a key to leave out."""
    if found := _GPUS.search(str(error)):
        return "gpus", int(found[1])
    if found := _SET.search(error.remedy):
        key, sign, text = found.groups()
        if not text.replace(".", "", 1).isdigit():
            return key, {"true": True, "false": False}.get(text, text.strip("\"'"))
        number = float(text) if "." in text else int(text)
        return key, number + (sign == ">")
    found = _OUT.search(error.remedy)
    return (found[1], None) if found else None


def accepted(job: Job, chance: random.Random) -> str:
    """A refusal that proposes a value is not repeated with it. Refusals in a circle are keys that
    contradict each other, of which each message proposes to change one."""
    tried, before, told = mistaken(job, chance), "", set[str]()
    while before not in told:
        told.add(before)
        try:
            run(load(tried.write()))
            return ""
        except InputError as error:
            if str(error) == before:
                return f"refused again with what it proposes: {error}"
            if (remedy := proposed(error)) is None:
                return ""
            before = str(error)
            tried = _with(tried, *remedy)
    return ""


def _with(job: Job, key: str, value: Any) -> Job:
    """The job with what a message proposes, whose keys are of the plan where it says no more."""
    first = key.split(".")[0]
    if first in _CHANGED:
        key = f"change.{key}"
    elif first not in ("plan", "change", *job.document):
        key = f"plan.{key}"
    return job.but({key: value}) if value is not None else job.without(key)


def fits(job: Job, chance: random.Random) -> str:
    """A plan that is said to fit does, and runs."""
    memory = chance.choice(("2 GiB", "4 GiB", "8 GiB", "16 GiB"))
    small: Any = run(load(job.write(), {"device.memory": memory}))
    if small.fits or not small.remedies:
        return ""
    remedy = chance.choice(list(small.remedies))
    settings = {f"plan.{key}": _value(text) for key, text in _pairs(remedy)}
    again: Any = run(load(job.write(), {"device.memory": memory, **settings}))
    return "" if again.fits else f"does not fit in {memory} with {remedy}"


def _pairs(remedy: str) -> list[tuple[str, str]]:
    return [(key, text) for key, _, text in (own.partition(" = ") for own in remedy.split(" and "))]


def _value(text: str) -> Any:
    return int(text) if text.isdigit() else text
