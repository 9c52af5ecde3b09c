"""What does a plan ask of a software that it cannot do?"""

from collections.abc import Iterator

from sim.hardware import capabilities
from sim.hardware.stack import Stack
from sim.parallel.plan import Plan


def lacking(plan: Plan, stack: Stack) -> tuple[str, ...]:
    """Reasons why a stack could not run a plan as it is; none where all is there, or unknown."""
    known = capabilities.load(stack.framework, where=stack.name)
    reasons = (known.lacks(choice, value, stack.released) for choice, value in _asked(plan))
    return tuple(f"{stack.name} cannot do this: {reason}" for reason in reasons if reason)


def _asked(plan: Plan) -> Iterator[tuple[str, str]]:
    """The choices that a plan makes, as `sim plan --only` has them."""
    for name in ("tp", "cp", "ep", "etp", "zero", "precision", "moments"):
        yield name, str(getattr(plan, name))
    if plan.pp > 1:
        yield "schedule", plan.pipeline
        yield "layers", "even" if plan.layers is None else "balanced"
    if plan.tp > 1:
        yield "sequence_parallel", "yes" if plan.sequence_parallel else "no"
    rule = plan.recompute
    yield "recompute", rule if isinstance(rule, str) else "+".join(rule)
    if isinstance(plan.recipe, str) and plan.recipe:
        yield "recipe", plan.recipe
