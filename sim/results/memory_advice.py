"""Whether a plan fits into memory, and what to change if it does not."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, combinations
from typing import Any

from sim.config.errors import InputError
from sim.config.readable import human_bytes
from sim.model.checkpointing import MODES
from sim.parallel.memory import memories
from sim.parallel.plan import Plan
from sim.parallel.step import training_step
from sim.results.result import Result
from sim.scenario.setup import PlanSetup, assemble

_NODE = 8  # GPUs; across nodes tensor parallelism is slow (Narayanan et al. 2021, section 3.2)
_MOST = 2  # remedies that are named
_BARELY = 0.05  # share of a GPU's memory; if less is left, the line says how much


def memory_line(result: Result) -> str:
    """Return a sentence about needed and offered memory and, if it is too little, about remedies.

    `does not fit: needs 93.0 GiB, but has 80.0 GiB; the largest part is activations; with recompute
    = selective or with tp = 8, it fits`.
    """
    if result.fits is None:
        return "Memory of the fullest GPU: unknown, as the recording does not say it"
    parts = dict(result.memory_per_gpu)
    held, room = human_bytes(parts.pop("total")), human_bytes(result.capacity)
    if result.fits:
        host = f"; its node holds {human_bytes(result.host_memory)}" if result.host_memory else ""
        spare = result.capacity - result.memory_per_gpu["total"]
        barely = f" with {human_bytes(spare)} to spare" * (spare < _BARELY * result.capacity)
        return f"Memory of the fullest GPU: {held} of {room}, fits{barely}{host}"
    too_big = f"Memory of the fullest GPU: does not fit: needs {held}, but has {room}"
    if not parts:
        return too_big
    largest = max(parts, key=lambda name: parts[name])
    advice = "with " + " or with ".join(result.remedies) + ", it fits"
    if not result.remedies and result.plan is None:
        advice = "the script has to take less: a smaller batch, recomputation, more sharding"
    elif not result.remedies:
        advice = "no change of one or two keys of the plan makes it fit; ask `sim plan`"
    return f"{too_big}; the largest part is {largest}; {advice}"


def remedies(setup: PlanSetup) -> list[str]:
    """Return the first two changes with which the job fits, each of one or two keys of the plan.
    The memory of each changed job is computed.

    Sharded states and recomputation come first, because they do not change the mesh.
    """
    found: dict[frozenset[str], str] = {}  # by the keys that change
    singles = [[setting] for setting in _settings(setup.job.plan)]
    for settings in chain(singles, (a + b for a, b in combinations(singles, 2))):
        keys = frozenset(key for key, _ in settings)
        enough = any(known <= keys for known in found)
        if len(keys) == len(settings) and not enough and _fits(setup, dict(settings)):
            found[keys] = " and ".join(map(_said, settings))
        if len(found) == _MOST:
            break
    return list(found.values())


def _said(setting: tuple[str, Any]) -> str:
    key, value = setting
    return f"{key} = {str(value).lower() if isinstance(value, bool) else value}"


def _settings(plan: Plan) -> Iterator[tuple[str, Any]]:
    """Yield settings that may help, the cheapest first."""
    if plan.data_parallel > 1:
        yield from (("zero", stage) for stage in (1, 2, 3) if stage > plan.zero)
    if plan.tp > 1 and not plan.sequence_parallel:
        yield "sequence_parallel", True
    if plan.recompute in MODES:
        yield from (("recompute", mode) for mode in MODES[MODES.index(str(plan.recompute)) + 1 :])
    if plan.microbatch > 1:
        yield "microbatch", plan.microbatch // 2
    for size in (2, 4, 8):
        if size * plan.tp <= _NODE:
            yield "tp", size * plan.tp
        yield "pp", size * plan.pp


def _fits(setup: PlanSetup, settings: dict[str, Any]) -> bool:
    job, topology = setup.job, setup.machine.topology
    try:
        plan = replace(job.plan, dp=None, **settings)
        other = assemble(
            setup.name, model=job.model, stack=job.stack, topology=topology, plan=plan
        ).job
        taken = memories(other, training_step(other))
    except InputError:
        return False
    return all(memory.fits(topology.device.usable_memory) for memory in taken)
