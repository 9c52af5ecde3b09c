"""Choices of where states lie and which ranks are neighbours, for layouts with the same passes."""

from collections.abc import Iterator
from typing import get_args

from sim.analysis.search.choices.choice import YES_OR_NO, Choice
from sim.analysis.search.choices.mesh import divides
from sim.analysis.search.space import Space
from sim.config.checked import replaced
from sim.model.optimizers import Moments
from sim.parallel.mesh import axes, dividing
from sim.parallel.plan import ON_DEVICE, Offload, Plan

OFFLOADS = {
    "none": ON_DEVICE,
    "optimizer": Offload(optimizer=1.0),
    "activations": Offload(activations=1.0),
    "states": Offload(optimizer=1.0, parameters=1.0),
    "all": Offload(optimizer=1.0, parameters=1.0, activations=1.0),
}
ORDERS = ("tp-cp-dp-pp", "tp-cp-pp-dp")  # tensor-parallel peers are neighbours in every framework


def _offloads(space: Space, plan: Plan) -> Iterator[str]:
    """Yield the names of states that hosts may keep. Without host links, hosts keep no states. They
    keep parameters only if ZeRO-3 shards the parameters."""
    for name, offload in OFFLOADS.items():
        if not offload or (space.topology.host and (plan.zero >= 3 or not offload.parameters)):
            yield name


def _replicas(space: Space, plan: Plan) -> Iterator[int]:
    """Yield the number of sharding groups: a single group over all replicas, or a group for each
    node."""
    yield 1
    inside = space.topology.gpus_per_node // plan.degree(
        axis for axis in axes() if axis not in ("dp", "pp")
    )
    shards = plan.dp or 1
    if 1 < inside < shards and shards % inside == 0:
        count = shards // inside
        if divides(_with_replicas(space, plan, count)):
            yield count


def _with_replicas(space: Space, plan: Plan, count: int) -> Plan:
    return replaced(plan, dp=(plan.dp or 1) // count, dp_replicate=count)


STATES = (
    Choice(
        name="zero",
        words=lambda: "0123",
        possible=lambda space, plan: range(1 + (space.stack.pipeline_zero if plan.pp > 1 else 3)),
        applies=lambda plan: (
            plan.degree(dividing("batch", "sequence")) > 1 and not plan.versions(0)
        ),
    ),
    Choice(
        name="reshard",
        words=lambda: YES_OR_NO,
        possible=lambda space, plan: (True, False),
        applies=lambda plan: plan.zero >= 3,
        usual=lambda space, plan, value: plan.pp == 1 or not value,
    ),
    Choice(
        name="no_sync",
        words=lambda: YES_OR_NO,
        possible=lambda space, plan: (False, True),
        applies=lambda plan: plan.zero >= 2 and plan.microbatches > 1,
        usual=lambda space, plan, value: value == (plan.pp > 1),
    ),
    Choice(
        name="offload",
        words=lambda: OFFLOADS,
        possible=_offloads,
        applies=lambda plan: not plan.versions(0),
        usual=lambda space, plan, name: name == "none",
        take=lambda space, plan, name: replaced(plan, offload=OFFLOADS[name]),
        read=lambda space, plan: next(
            (name for name, offload in OFFLOADS.items() if offload == plan.offload), None
        ),
    ),
    Choice(
        name="moments",
        words=lambda: get_args(Moments),
        possible=lambda space, plan: get_args(Moments),
        usual=lambda space, plan, moments: moments == "fp32",
    ),
    Choice(
        name="dp_replicate",
        possible=_replicas,
        take=_with_replicas,
        applies=lambda plan: plan.zero > 0,
    ),
    Choice(
        name="order",
        words=lambda: ORDERS,
        possible=lambda space, plan: ORDERS,
        applies=lambda plan: plan.pp > 1 and plan.data_parallel > 1,
    ),
)
