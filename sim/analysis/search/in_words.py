"""A layout in words: its plan in a line, its cells in a table, why the runner-up lost to it."""

from collections.abc import Sequence

from sim.analysis.search.choices.choice import written
from sim.parallel.plan import Plan
from sim.results.differences import differences, told
from sim.results.result import Result


def why(results: Sequence[Result]) -> str:
    """Why the second of some results, fastest first, lost: the causes on which it spends more, and
    less, than the first."""
    if len(results) < 2:
        return "there is no other layout to compare with"
    best, second = results[:2]
    more = differences(best.breakdown, second.breakdown)
    words = list(told(more, 1e-4 * best.step_time))
    lost = second.step_time - best.step_time
    return f"the runner-up takes {lost:.3f} s ({lost / best.step_time:.2%}) longer: " + ", ".join(
        words or ["the same in every cause"]
    )


def plan_text(plan: Plan) -> str:
    """A plan in one line.

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
    words += [plan.order] if plan.order != Plan(global_batch=1).order else []
    return ", ".join(words)


def _schedule(plan: Plan) -> str:
    if plan.pp == 1:
        return ""
    return f"{plan.pipeline} {plan.interleave}" if plan.interleave > 1 else plan.pipeline


def _context(plan: Plan) -> str:
    """The ranks of a sequence, and how they reach each other's keys unless as the stack does."""
    return str(plan.cp) if plan.context is None or plan.cp == 1 else f"{plan.cp} {plan.context}"


def _experts(plan: Plan) -> str:
    """Groups of ranks that share the experts x ranks that share each."""
    return f"{plan.ep} x {plan.etp}" if plan.etp > 1 else str(plan.ep)


def _replicas(plan: Plan) -> str:
    """Of hybrid sharding groups x ranks of a group."""
    return f"{plan.dp_replicate} x {plan.dp}" if plan.dp_replicate > 1 else str(plan.dp)
