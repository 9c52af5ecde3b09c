"""Model state: which ranks hold the same parameters, and the bytes that a parameter takes.

A group of parameters is split along some axes of a stage. Along the other axes ranks hold the same
shard, each for its own tokens: over these axes gradients are summed and ZeRO shards states.
"""

from functools import lru_cache
from typing import TYPE_CHECKING

from sim.config.dataclass import dataclass
from sim.hardware.stack import Allocator
from sim.model.execution import ParameterGroup
from sim.model.fusion import Gradients
from sim.model.kernels import Precision, weight_width
from sim.model.optimizers import gradient_width
from sim.parallel.mesh import Layouts, axes, axis_of
from sim.parallel.plan import ON_DEVICE, Offload, Plan

if TYPE_CHECKING:
    from sim.model.precision import Recipe


def gradient_axes(plan: Plan, group: ParameterGroup) -> tuple[str, ...]:
    """Return the axes over which a group's gradients are summed, without axes of a single rank.

    >>> plan = Plan(global_batch=64, tp=2, dp=8, ep=4)
    >>> from sim.model.execution import DENSE, EXPERTS
    >>> gradient_axes(plan, DENSE), gradient_axes(plan, EXPERTS)
    (('dp.1', 'dp.2'), ('dp.2',))
    """
    return _replicated(plan.digits, group.split_by)


def state_axes(plan: Plan, group: ParameterGroup) -> tuple[str, ...]:
    """Return the replica axes over which ZeRO shards the states of a group."""
    return _sharded(plan.digits, group.split_by)


def shards(plan: Plan, group: ParameterGroup) -> int:
    """Return the number of ranks that share the states of a group; 1 without ZeRO."""
    return plan.degree(state_axes(plan, group)) if plan.zero else 1


def near_axes(plan: Plan, group: ParameterGroup) -> tuple[str, ...]:
    """Return the sharding axes along which near ranks lie, which together keep all weights."""
    return tuple(axis for axis in state_axes(plan, group) if not axes()[axis_of(axis)].far)


def replica_axes(plan: Plan, group: ParameterGroup) -> tuple[str, ...]:
    """Return the replica axes over which sharded gradients must still be summed."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Bytes for each parameter of model state, before ZeRO (Rajbhandari et al. 2020) divides it.

    ZeRO-1 divides `master` and `moments` among `shards` ranks, ZeRO-2 also `gradients`, ZeRO-3 also
    `weights`. `fresh` gradients live until the backward pass that makes them has ended. `update`
    lives only during the optimizer step, on the share that the rank updates. `gather` counts the
    copies through which ZeRO-1 gathers weights. `growing` gradients are allocated in the backward
    pass. DDP's gradients are views of buckets that stay allocated; then `beside` counts the
    gradients of earlier micro-steps.
    """

    weights: float
    gradients: float
    master: float
    moments: float
    fresh: float = 0.0
    update: float = 0.0
    gather: float = 0.0
    growing: bool = False
    beside: float = 0.0
    zero: int = 0
    shards: int = 1
    offload: Offload = ON_DEVICE

    def share(self, stage: int) -> float:
        """Return a rank's share of states that ZeRO divides from `stage` on."""
        return 1.0 / self.shards if self.zero >= stage else 1.0

    def parts(self, parameters: float) -> dict[str, float]:
        """Return the bytes on the device of a rank with `parameters` parameters, by part."""
        away = self.on_host(parameters)
        return {
            "weights": parameters * self.weights * self.share(3) - away["weights"],
            "gradients": parameters * self.gradients * self.share(2)
            - away["gradients"] * (self.zero >= 2 and self.offload.overlap),
            "optimizer": parameters * self.kept * self.share(1) - away["optimizer"],
        }

    def on_host(self, parameters: float) -> dict[str, float]:
        """Return the bytes of `parameters` parameters on a rank's host. Gradients are on the host
        if the optimizer's states are."""
        states = parameters * self.share(1) * self.offload.optimizer
        return {
            "weights": parameters * self.weights * self.share(3) * self.offload.parameters,
            "gradients": states * self.gradients,
            "optimizer": states * self.kept,
        }

    @property
    def kept(self) -> float:
        """Bytes of the optimizer's states for each parameter."""
        return self.master + self.moments


@lru_cache(maxsize=1024)
def state(
    *,
    precision: Precision,
    moments: float = 8.0,
    gradients: Gradients = "fused",
    zero: int = 0,
    shards: int = 1,
    replicas: int = 1,
    fused: bool = True,
    master: bool = True,
    allocator: Allocator | None = None,
    recipe: "Recipe | None" = None,
    offload: Offload = ON_DEVICE,
) -> State:
    """Return the bytes for each parameter in mixed-precision training.

    They are half-precision weights (2), gradients (2, or 4 in an fp32 buffer), an fp32 copy of the
    weights (`master`, 4) and `moments` (8 for Adam). The sum is 16 bytes for Megatron's fp16, 18
    with fp32 gradients (Korthikanti et al. 2022; Rajbhandari et al. 2020, section 3.1), 20 for
    nanotron with data parallelism. The optimizer step casts half-precision gradients to fp32 (4,
    Megatron-LM's optimizer.py); unless `fused`, it takes 4 bytes more (torch's for-each Adam). A
    `recipe` holds weights in its format instead of bf16 or beside it. Gradients are summed over
    `replicas` ranks, states sharded among `shards` of them.

    >>> s = state(precision="fp16", gradients="buffer")
    >>> s.weights + s.gradients + s.master + s.moments
    16.0
    """
    allocator = allocator or Allocator()
    weight = float(weight_width(precision))
    mixed = weight < 4
    gradient = gradient_width(precision, gradients)
    half = weight if allocator.half_gradients and gradient > weight else 0.0
    cast = 4.0 if mixed and gradient < 4 else 0.0
    copies = allocator.gather_copies and zero > 0 and shards > 1
    buckets = replicas > 1 and zero < 2
    return State(
        weights=recipe.held_weight if recipe else weight,
        gradients=gradient + (half if replicas > 1 else 0.0),
        master=4.0 if mixed and master else 0.0,
        moments=moments,
        fresh=half if replicas == 1 else 0.0,
        update=cast + (0.0 if fused else 4.0),
        gather=weight * (1 + 1 / shards) if copies else 0.0,
        growing=gradients == "fresh" and not buckets,
        beside=weight if gradients == "fresh" and buckets else 0.0,
        zero=zero,
        shards=shards,
        offload=offload,
    )


def frozen(recipe: "Recipe | None", precision: Precision, zero: int, shards: int) -> State:
    """Return the bytes for each parameter that is not trained."""
    weights = recipe.held_weight if recipe else float(weight_width(precision))
    return State(weights=weights, gradients=0.0, master=0.0, moments=0.0, zero=zero, shards=shards)
