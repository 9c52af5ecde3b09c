"""Whether a plan fits into memory, and what to change where it does not."""

from sim.config.units import human_bytes
from sim.model.checkpointing import Names
from sim.parallel.plan import Plan
from sim.results.result import Result

_MORE_RECOMPUTE: dict[Names, str] = {"none": "selective", "selective": "full"}
_STATE = ("weights", "parameters", "gradients", "optimizer", "master", "moments")
_NODE = 8  # GPUs; across nodes tensor parallelism is slow (Narayanan et al. 2021, section 3.2)


def memory_line(result: Result) -> str:
    """One sentence: how much of how much, and if it does not fit what is largest and what helps.

    `does not fit: 93.0 GiB of 80.0 GiB; the largest part is activations; try recompute = selective
    or tp = 8`. The values come from the result's plan; without one the advice names none.
    """
    parts = dict(result.memory_per_gpu)
    sizes = f"{human_bytes(parts.pop('total'))} of {human_bytes(result.capacity)}"
    if result.fits:
        host = f"; its node holds {human_bytes(result.host_memory)}" if result.host_memory else ""
        return f"Memory of the fullest GPU: {sizes}, fits{host}"
    too_big = f"Memory of the fullest GPU: does not fit: {sizes}"
    if not parts:
        return too_big
    largest = max(parts, key=lambda name: parts[name])
    advice = " or ".join(remedies(largest, result.plan))
    return f"{too_big}; the largest part is {largest}; try {advice}"


def remedies(part: str, plan: Plan | None = None) -> list[str]:
    """The two cheapest settings that make a part of the memory smaller.

    >>> from sim.parallel.plan import Plan
    >>> remedies("activations", Plan(global_batch=64, tp=4))
    ['recompute = selective', 'tp = 8']
    >>> remedies("optimizer", Plan(global_batch=64, tp=8, dp=4))
    ['zero = 1', 'pp = 2']
    >>> remedies("activations")
    ['more recomputation', 'a larger tp']
    """
    state = any(name in part for name in _STATE)
    if plan is None:
        return ["a higher zero" if state else "more recomputation", "a larger tp"]
    settings = {
        "zero = 1": state and plan.zero == 0 and (plan.dp or 1) > 1,
        f"recompute = {_MORE_RECOMPUTE.get(plan.recompute)}": (
            not state and plan.recompute in _MORE_RECOMPUTE
        ),
        f"tp = {2 * plan.tp}": 2 * plan.tp <= _NODE,
        f"microbatch = {plan.microbatch // 2}": not state and plan.microbatch > 1,
        f"pp = {2 * plan.pp}": True,
    }
    return [setting for setting, helps in settings.items() if helps][:2]
