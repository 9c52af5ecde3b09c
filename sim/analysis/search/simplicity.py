"""How simple is a layout? Count everything that it has beyond data parallelism."""

from sim.parallel.plan import Plan

_SIZES = ("tp", "cp", "pp", "ep", "etp", "dp_replicate")
# A layout that needs at most this share of the memory is roomy: real jobs also allocate memory
# for communicators and evaluation.
ROOMY = 0.9
_PLAIN = Plan(global_batch=1)


def complications(plan: Plan) -> tuple[str, ...]:
    """Return everything beyond plain data parallelism that a user must set up, watch and explain.

    >>> complications(Plan(global_batch=8)), complications(Plan(global_batch=8, tp=2, zero=1))
    ((), ('tp', 'zero 1'))
    >>> complications(Plan(global_batch=8, pp=2, schedule="interleaved", interleave=3))
    ('pp', 'interleaved 3')
    """
    words = [name for name in _SIZES if getattr(plan, name) > 1]
    words += [axis for axis, size in plan.axes.items() if size > 1]
    if plan.pp > 1 and plan.pipeline != "1f1b":
        words.append(plan.pipeline + f" {plan.interleave}" * (plan.interleave > 1))
    said = {
        f"zero {plan.zero}": plan.zero > 0,
        f"reshard {plan.reshard}": plan.reshard is not _PLAIN.reshard,
        "no_sync": bool(plan.no_sync),
        "offload": bool(plan.offload),
        f"moments {plan.moments}": plan.moments != _PLAIN.moments,
        "balanced layers": plan.layers is not None,
        f"recompute {_rule(plan)}": plan.recompute != "none",
        f"dispatcher {plan.dispatcher}": plan.dispatcher is not None,
        "overlap_experts": bool(plan.overlap_experts),
        f"order {plan.order}": plan.order != _PLAIN.order,
    }
    return tuple(words + [word for word, is_so in said.items() if is_so])


def _rule(plan: Plan) -> str:
    return plan.recompute if isinstance(plan.recompute, str) else "+".join(plan.recompute)


def score(plan: Plan) -> tuple[int, int]:
    """Return the number of complications and the ZeRO stage; smaller is simpler. ZeRO-1 is not
    counted, since it is a single option and changes no pass.

    >>> score(Plan(global_batch=8, pp=4, zero=1)) < score(Plan(global_batch=8, cp=2, pp=8))
    True
    """
    return len(complications(plan)) - (plan.zero == 1), plan.zero
