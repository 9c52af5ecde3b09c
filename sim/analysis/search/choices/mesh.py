"""The sizes of the mesh. Layouts with the same sizes share most of their work."""

from collections.abc import Iterator
from dataclasses import replace
from math import gcd

from sim.analysis.search.choices.choice import Choice, divisors
from sim.analysis.search.space import Space
from sim.config.errors import InputError
from sim.model.kinds import experts_of
from sim.parallel.mesh import axes
from sim.parallel.plan import Plan

_TOKENS = 4096  # fewest tokens on a rank with which context parallelism is tried unasked
# The most experts of a rank, and the most nodes of a group, that are tried unasked. Source:
# DeepSeek-V3 on 64 ranks of 8 nodes (arXiv 2412.19437, section 3.2).
_EXPERTS, _NODES = 32, 8


def _tensor(space: Space, plan: Plan) -> Iterator[int]:
    model = space.model
    for tp in divisors(space.gpus, space.gpus):
        if model.heads % tp == 0 and model.ffn % tp == 0:
            yield tp


def _context(space: Space, plan: Plan) -> Iterator[int]:
    """Yield sizes of context parallelism. Each rank has two shares of the sequence, so a causal
    mask leaves equal work to all ranks."""
    for cp in divisors(_left(space, plan), space.model.seq):
        if cp == 1 or space.model.seq % (2 * cp) == 0:
            yield cp


def _stages(space: Space, plan: Plan) -> list[int]:
    return divisors(_left(space, plan), space.model.layers)


def _with_stages(space: Space, plan: Plan, pp: int) -> Plan:
    return replace(plan, pp=pp, dp=_left(space, plan) // pp)


def _left(space: Space, plan: Plan) -> int:
    """Return the number of GPUs that are left for each rank of the axes chosen so far."""
    return space.gpus // plan.degree(axes())


def _experts(space: Space, plan: Plan) -> Iterator[int]:
    """Yield the numbers of ranks that divide a stage's experts evenly in every layer."""
    if space.model.tables:
        yield plan.data_parallel
        return
    ranks = (plan.dp or 1) * plan.tp * plan.cp
    each = gcd(*(settings.experts for settings in experts_of(space.model)))
    for ep in divisors(gcd(each, ranks), ranks) if each else [1]:
        if divides(replace(plan, ep=ep)):
            yield ep


def _usual_experts(space: Space, plan: Plan, ep: int) -> bool:
    """Return whether a rank has no more experts, and a group no more nodes, than in published
    jobs."""
    if space.model.tables:
        return True
    most = max((settings.experts for settings in experts_of(space.model)), default=1)
    return most <= _EXPERTS * ep and ep <= _NODES * max(space.topology.gpus_per_node, 8)


def _expert_tensor(space: Space, plan: Plan) -> Iterator[int]:
    """Yield the numbers of neighbouring ranks among which each expert can be divided."""
    ranks = (plan.dp or 1) * plan.tp * plan.cp // plan.ep
    width = gcd(*(settings.ffn for settings in experts_of(space.model)))
    for etp in divisors(gcd(width, ranks), ranks) if width else [1]:
        if divides(replace(plan, etp=etp)):
            yield etp


def _own_axis(name: str) -> Choice:
    """Return the choice of a user-defined axis, which is tried only where it is asked for."""
    return Choice(
        name=name,
        possible=lambda space, plan: divisors(_left(space, plan), space.gpus),
        usual=lambda space, plan, size: size == 1,
        take=lambda space, plan, size: replace(plan, axes={**plan.axes, name: size}),
        read=lambda space, plan: plan.size(name),
    )


def divides(plan: Plan) -> bool:
    """Return whether the expert groups divide the ranks of a stage over which ZeRO shards."""
    try:
        plan.check_mesh()
    except InputError:
        return False
    return True


_OF_A_SEQUENCE = (
    Choice(
        name="tp",
        possible=_tensor,
        usual=lambda space, plan, tp: tp <= max(space.topology.gpus_per_node, 8),
    ),
    Choice(
        name="cp",
        possible=_context,
        usual=lambda space, plan, cp: cp == 1 or space.model.seq // cp >= _TOKENS,
    ),
)
_OF_THE_REST = (
    Choice(name="pp", possible=_stages, take=_with_stages),
    Choice(name="dp", possible=lambda space, plan: filter(None, [plan.dp])),  # all remaining ranks
    Choice(name="ep", possible=_experts, usual=_usual_experts),
    Choice(name="etp", possible=_expert_tensor, usual=lambda space, plan, etp: etp == 1),
)


def sizes() -> tuple[Choice, ...]:
    """Return the choices of sizes, with user-defined axes; data parallelism takes the other
    ranks."""
    user_axes = (axis for axis in axes() if axis not in Plan.__dataclass_fields__)
    return *_OF_A_SEQUENCE, *map(_own_axis, user_axes), *_OF_THE_REST
