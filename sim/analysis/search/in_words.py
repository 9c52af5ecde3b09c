"""A layout in words: its plan in a line, its cells in a table, and why it is faster or slower."""

from collections.abc import Sequence

from sim.analysis.search.choices.choice import written
from sim.parallel.plan import Plan
from sim.results.differences import differences, told
from sim.results.result import Result


def why(chosen: Result | None, results: Sequence[Result]) -> str:
    """Say how the fastest other result compares with the chosen result: the difference of the
    simulated seconds, and the causes on which it spends more or less time."""
    other = next((result for result in results if result is not chosen), None)
    if chosen is None or other is None or other.plan is None:
        return "there is no other layout to compare with"
    more = differences(chosen.breakdown, other.breakdown)
    words = list(told(more, 1e-4 * chosen.step_time)) or ["the same in every cause"]
    lost = other.step_time - chosen.step_time
    share, way = abs(lost) / chosen.step_time, "longer" if lost >= 0.0 else "less"
    return (
        f"{plan_text(other.plan)} takes {abs(lost):.3f} s ({share:.2%}) {way}, simulated: "
        f"{', '.join(words)}"
    )


def plan_text(plan: Plan) -> str:
    """Write a plan in one line.

    >>> plan_text(Plan(global_batch=8, tp=2, pp=2, dp=2, zero=1))
    'tp 2, pp 2, dp 2, microbatch 1, 1f1b, zero 1'
    """
    words = [f"tp {plan.tp}"] + ([f"cp {_context(plan)}"] if plan.cp > 1 else [])
    words += [f"{axis} {size}" for axis, size in plan.axes.items() if size > 1]
    words += [f"ep {_experts(plan)}"] if _experts(plan) != "1" else []
    words += [f"pp {plan.pp}", f"dp {_replicas(plan)}", f"microbatch {plan.microbatch}"]
    words += [_schedule(plan)] if plan.pp > 1 else []
    words += [f"{plan.dispatcher} dispatch"] if plan.dispatcher else []
    words += ["overlapped experts"] if plan.overlap_experts else []
    words += ["balanced layers"] if plan.layers is not None else []
    words += [f"zero {plan.zero}"] if plan.zero else []
    kept = plan.reshard in (False, "near")
    words += ["weights kept" + " near" * (plan.reshard == "near")] if kept else []
    words += ["gradients reduced once"] if plan.no_sync else []
    words += ["offload"] if plan.offload else []
    words += [f"moments in {plan.moments}"] if plan.moments != "fp32" else []
    words += [f"{written(plan.recompute)} recomputation"] if plan.recompute != "none" else []
    words += ["sequence parallel"] if plan.sequence_parallel else []
    words += [f"rank order {plan.order}"] if plan.order != Plan(global_batch=1).order else []
    return ", ".join(words)


def _schedule(plan: Plan) -> str:
    if plan.pp == 1:
        return ""
    return f"{plan.pipeline} {plan.interleave}" if plan.interleave > 1 else plan.pipeline


def _context(plan: Plan) -> str:
    """Write how many ranks share a sequence, and how they exchange keys if the plan says so."""
    return str(plan.cp) if plan.context is None or plan.cp == 1 else f"{plan.cp} {plan.context}"


def _experts(plan: Plan) -> str:
    """Write "groups of ranks among which experts are divided x ranks that share each expert"."""
    return f"{plan.ep} x {plan.etp}" if plan.etp > 1 else str(plan.ep)


def _replicas(plan: Plan) -> str:
    """Write the data-parallel ranks; with hybrid sharding, "sharding groups x ranks of each"."""
    return f"{plan.dp_replicate} x {plan.dp}" if plan.dp_replicate > 1 else str(plan.dp)
