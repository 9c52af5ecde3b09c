"""Which ranks hold the same parameters: over which axes of the mesh a group's gradients are summed,
and ZeRO shards its states.

A group is split along some axes; the other ranks of a stage hold the same shard of it, each for
tokens of its own.
"""

from functools import lru_cache

from sim.model.execution import ParameterGroup
from sim.parallel.mesh import Layouts, axes, axis_of
from sim.parallel.plan import Plan


def gradient_axes(plan: Plan, group: ParameterGroup) -> tuple[str, ...]:
    """The axes over which the gradients of a group are summed, without axes of a single rank.

    >>> plan = Plan(global_batch=64, tp=2, dp=8, ep=4)
    >>> from sim.model.execution import DENSE, EXPERTS
    >>> gradient_axes(plan, DENSE), gradient_axes(plan, EXPERTS)
    (('dp.1', 'dp.2'), ('dp.2',))
    """
    return _replicated(plan.digits, group.split_by)


def state_axes(plan: Plan, group: ParameterGroup) -> tuple[str, ...]:
    """The replica axes over which ZeRO shards the states of a group."""
    return _sharded(plan.digits, group.split_by)


def shards(plan: Plan, group: ParameterGroup) -> int:
    """The number of ranks that share the states of a group; 1 without ZeRO."""
    return plan.degree(state_axes(plan, group)) if plan.zero else 1


def near_axes(plan: Plan, group: ParameterGroup) -> tuple[str, ...]:
    """The sharding axes within which near ranks keep shares of all weights."""
    return tuple(axis for axis in state_axes(plan, group) if not axes()[axis_of(axis)].far)


def replica_axes(plan: Plan, group: ParameterGroup) -> tuple[str, ...]:
    """The replica axes over which sharded gradients must still be summed."""
    return tuple(axis for axis in gradient_axes(plan, group) if _repeats(axis))


@lru_cache(maxsize=4096)
def _replicated(known: Layouts, split_by: tuple[str, ...]) -> tuple[str, ...]:
    divided = {"pp", *(part for axis in split_by for part in known.parts.get(axis, ()))}
    return tuple(axis for axis, size in known.mesh.items() if size > 1 and axis not in divided)


@lru_cache(maxsize=4096)
def _sharded(known: Layouts, split_by: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(axis for axis in _replicated(known, split_by) if not _repeats(axis))


def _repeats(axis: str) -> bool:
    """Whether whole sharded groups are repeated along an axis."""
    found = axes()[axis_of(axis)]
    return found.divides == "batch" and not found.shards_states
