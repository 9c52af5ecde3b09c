"""Choices of a rank's work in a microbatch, and of the order of passes."""

from collections.abc import Iterable, Iterator
from typing import get_args

from sim.analysis.search.choices.choice import YES_OR_NO, Choice, divisors
from sim.analysis.search.space import Space
from sim.config.checked import replaced
from sim.config.errors import InputError
from sim.model import counts
from sim.model.block import check_rule
from sim.model.checkpointing import MODES, SELECTIVE
from sim.model.fusion import Context, Dispatcher
from sim.parallel import schedule as schedules
from sim.parallel.plan import MOST_MICROBATCHES, Plan
from sim.parallel.resolved import check_used
from sim.parallel.uneven_layers import balanced

EVEN, BALANCED = "even", "balanced"
_MICROBATCH, _CHUNKS = 16, 12  # the largest values that are tried unasked


def _microbatches(space: Space, plan: Plan) -> list[int]:
    per_replica, rest = divmod(space.global_batch, plan.data_parallel)
    whole = [] if rest else divisors(per_replica, per_replica)
    return [size for size in whole if per_replica // size <= MOST_MICROBATCHES]


def _recomputation(space: Space, plan: Plan) -> Iterator[str | tuple[str, ...]]:
    """Yield the usual words, and modules that the user asks for (--only
    recompute=none,mlp+layernorm) or that the software takes."""
    modules = space.model.alike
    yield from (mode for mode in MODES if modules or mode != SELECTIVE)
    for value in space.only.get("recompute", space.capabilities.tried.get("recompute", ())):
        names = tuple(value.split("+"))
        if value not in MODES:
            rule = space.stack.checkpointing.rule(names)
            check_rule(rule, space.model.kinds, counts.whole(space.model, 1), where="--only")
            yield names


def _contexts(space: Space, plan: Plan) -> Iterator[Context]:
    """Yield the exchanges of context parallelism. Ulysses needs the rank's heads divided by
    `cp`."""
    heads = space.model.heads // plan.tp
    yield from (name for name in get_args(Context) if name != "ulysses" or heads % plan.cp == 0)


def _pipelined(plan: Plan) -> bool:
    return plan.pp > 1


def _schedules(space: Space, plan: Plan) -> Iterator[str]:
    """Yield the schedules that take the microbatches. A schedule with a fixed number of chunks is
    left out if that number is not among the tried values of `interleave`."""
    for name, entry in schedules.table().items():
        tried = entry.chunks is None or space.allows("interleave", str(entry.chunks))
        if tried and entry.takes(plan.pp, plan.microbatches):
            yield name


def _usual_schedule(space: Space, plan: Plan, name: str) -> bool:
    """Return whether a schedule is tried unasked. Schedules are left out if they exist for
    comparison, search for an order, need uneven groups, or train with stale gradients."""
    entry = schedules.entry(name)
    whole = plan.microbatches % entry.group(plan.pp) == 0
    return entry.usual and entry.searched is None and entry.versions is None and whole


def _chunks(space: Space, plan: Plan) -> Iterable[int]:
    return range(2, space.model.layers // plan.pp + 1)


def _splits(space: Space, plan: Plan) -> Iterator[str]:
    """Yield the ways to divide layers: evenly (or as the stack does), and so that the costliest
    chunk is as cheap as possible."""
    layers, pieces = space.model.layers, plan.cuts
    if not space.model.alike:
        yield EVEN  # unlike layers are always divided so that the slowest stage is fastest
        return
    if _even(space, pieces) or space.stack.balance != "even":
        yield EVEN
    if layers >= pieces:
        yield BALANCED


def _even(space: Space, pieces: int) -> bool:
    """Return whether all pieces can have equally many layers, or the pieces at both ends one layer
    less."""
    return space.model.layers % pieces == 0 or (space.model.layers + 2) % pieces == 0


def _with_split(space: Space, plan: Plan, way: str) -> Plan:
    if way == EVEN:
        return plan
    return replaced(plan, layers=balanced(space.model, space.stack, plan.pp, plan.cuts // plan.pp))


def _with_dispatcher(space: Space, plan: Plan, name: Dispatcher) -> Plan:
    return plan if name == space.stack.dispatcher else replaced(plan, dispatcher=name)


def _turns(space: Space, plan: Plan) -> Iterator[bool]:
    """Yield whether passes run beside the all-to-alls of experts. True is yielded only if the user
    asks for it and the passes take turns."""
    yield False
    if "overlap_experts" in space.only:
        try:
            check_used(replaced(plan, overlap_experts=True), where="--only")
        except InputError:
            return
        yield True


def _with_turns(space: Space, plan: Plan, value: bool) -> Plan:
    """Return the plan with the value; if nobody asks for a value, leave it to the schedule."""
    return replaced(plan, overlap_experts=value) if "overlap_experts" in space.only else plan


PASSES = (
    Choice(
        name="microbatch",
        possible=_microbatches,
        usual=lambda space, plan, size: size <= _MICROBATCH and size & (size - 1) == 0,
    ),
    Choice(name="recompute", possible=_recomputation, words=lambda: MODES, open=True),
    Choice(
        name="context",
        words=lambda: get_args(Context),
        possible=_contexts,
        applies=lambda plan: plan.cp > 1,
        usual=lambda space, plan, context: context == space.stack.context,
        read=lambda space, plan: plan.context or space.stack.context,
    ),
    Choice(
        name="sequence_parallel",
        words=lambda: YES_OR_NO,
        possible=lambda space, plan: (False, True),
        applies=lambda plan: plan.tp > 1,
    ),
    Choice(
        name="schedule",
        words=schedules.table,
        possible=_schedules,
        applies=_pipelined,
        usual=_usual_schedule,
    ),
    Choice(
        name="interleave",
        possible=_chunks,
        applies=lambda plan: plan.pp > 1 and schedules.entry(plan.schedule).chunks is None,
        usual=lambda space, plan, chunks: chunks <= _CHUNKS and _even(space, plan.pp * chunks),
    ),
    Choice(
        name="layers",
        words=lambda: (EVEN, BALANCED),
        possible=_splits,
        applies=_pipelined,
        usual=lambda space, plan, split: (
            split == EVEN or plan.chunks == 1 or not _even(space, plan.cuts)
        ),
        take=_with_split,
        read=lambda space, plan: EVEN if plan.layers is None else BALANCED,
    ),
    Choice(
        name="dispatcher",
        words=lambda: get_args(Dispatcher),
        possible=lambda space, plan: get_args(Dispatcher),
        applies=lambda plan: plan.ep > 1,
        usual=lambda space, plan, name: name == space.stack.dispatcher,
        take=_with_dispatcher,
        read=lambda space, plan: plan.dispatcher or space.stack.dispatcher,
    ),
    Choice(
        name="overlap_experts",
        words=lambda: YES_OR_NO,
        possible=_turns,
        applies=lambda plan: plan.ep > 1 and not plan.versions(0),
        usual=lambda space, plan, value: not value,
        take=_with_turns,
    ),
)
