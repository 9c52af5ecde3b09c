"""How a training step is spread over the cluster: the `[plan]` table of a scenario."""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from annotated_types import Ge

from sim.collectives.compression import Compression
from sim.config.errors import InputError
from sim.model.kernels import Precision

Count = Annotated[int, Ge(1)]
MOST_MICROBATCHES = 20_000
Schedule = Literal["none", "naive", "gpipe", "1f1b", "interleaved"]
Recompute = Literal["none", "selective", "full"]
Optimizer = Literal["adam", "sgd", "lamb"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Sizes of the mesh axes, the batch, and the ways of saving memory.

    `microbatch` is in sequences per micro-step and data-parallel rank, `global_batch` in sequences
    per optimizer step. `dp` may be left out: it is then what the GPUs leave. `layers` gives the
    transformer layers of each pipeline stage (when interleaved, of each chunk in the order of the
    model); without it they are split evenly, or as the stack does. `zero` is the ZeRO stage
    (Rajbhandari et al. 2020): 0 none, 1 optimizer state, 2 also gradients, 3 also parameters.
    `activations` is how they are compressed between pipeline stages
    (`sim.collectives.compression`).
    """

    global_batch: Count
    microbatch: Count = 1
    tp: Count = 1
    cp: Count = 1
    pp: Count = 1
    dp: Count | None = None
    schedule: Schedule = "1f1b"
    interleave: Count = 1
    layers: tuple[Count, ...] | None = None
    zero: Annotated[int, Ge(0)] = 0
    recompute: Recompute = "none"
    sequence_parallel: bool = False
    precision: Precision = "bf16"
    optimizer: Optimizer = "adam"
    order: str = "tp-cp-dp-pp"
    activations: Compression | None = None

    @property
    def mesh(self) -> dict[str, int]:
        """Axis sizes, fastest varying first."""
        return {axis: getattr(self, axis) or 1 for axis in self.order.split("-")}

    @property
    def replicas(self) -> int:
        assert self.dp is not None, "resolved() fills dp in"
        return self.dp

    @property
    def copies(self) -> int:
        """Ranks that hold the same weights and sum their gradients: dp * cp."""
        return self.replicas * self.cp

    @property
    def microbatches(self) -> int:
        """Micro-steps per optimizer step and data-parallel rank."""
        return self.global_batch // (self.microbatch * self.replicas)

    @property
    def interleaved(self) -> bool:
        return self.pp > 1 and self.interleave > 1

    def resolved(self, gpus: int, *, where: str = "plan") -> "Plan":
        """This plan on `gpus` GPUs, `dp` filled in. Raises `InputError` where they do not fit."""
        _check_order(self, where)
        model_parallel = self.tp * self.cp * self.pp
        product = model_parallel * (self.dp or 1)
        if gpus % model_parallel or (self.dp is not None and product != gpus):
            raise InputError(where, *_mismatch(self, model_parallel, gpus))
        plan = replace(self, dp=gpus // model_parallel)
        _check_batch(plan, where)
        _check_features(plan, where)
        return plan


def _mismatch(plan: Plan, model_parallel: int, gpus: int) -> tuple[str, str]:
    if gpus % model_parallel:
        axes = "tp*cp*pp" if plan.cp > 1 else "tp*pp"
        what = f"{axes} = {model_parallel} does not divide the {gpus} GPUs of the cluster"
        return what, "change tp or pp, or set gpus"
    what = f"tp*pp*dp = {model_parallel * (plan.dp or 1)} but the cluster has {gpus} GPUs"
    return what, f"set dp = {gpus // model_parallel} or leave it out"


def _check_order(plan: Plan, where: str) -> None:
    axes = plan.order.split("-")
    if sorted(axes) != ["cp", "dp", "pp", "tp"]:
        raise InputError(
            where, f"order = {plan.order!r}", "name tp, cp, dp and pp once each: 'tp-cp-dp-pp'"
        )


def _check_batch(plan: Plan, where: str) -> None:
    each = plan.microbatch * plan.replicas
    if plan.global_batch % each:
        near = max(plan.global_batch // each, 1) * each
        raise InputError(
            where,
            f"global_batch = {plan.global_batch} is not a multiple of microbatch*dp = {each}",
            f"set global_batch = {near}",
        )
    if plan.microbatches > MOST_MICROBATCHES:
        raise InputError(
            where,
            f"{plan.microbatches:,} micro-steps a step; at most {MOST_MICROBATCHES:,} are played",
            "raise microbatch or dp, or lower global_batch",
        )
    if plan.interleaved and plan.microbatches % plan.pp:
        raise InputError(
            where,
            f"interleaving needs microbatches in groups of pp = {plan.pp}, "
            f"but there are {plan.microbatches}",
            f"set global_batch = {each * plan.pp * -(-plan.microbatches // plan.pp)}",
        )


def _check_features(plan: Plan, where: str) -> None:
    if plan.schedule == "none" and plan.pp > 1:
        raise InputError(where, f"schedule = 'none' with pp = {plan.pp}", "set schedule = '1f1b'")
    if plan.interleave > 1 and plan.pp == 1:
        raise InputError(where, "interleave > 1 without pipeline stages", "set pp > 1")
    if plan.interleave > 1 and plan.schedule not in ("interleaved", "1f1b"):
        raise InputError(
            where,
            f"interleave = {plan.interleave} with schedule = {plan.schedule!r}",
            "set schedule = 'interleaved'",
        )
    if plan.sequence_parallel and plan.tp == 1:
        raise InputError(
            where, "sequence_parallel without tensor parallelism", "set tp > 1 or leave it out"
        )
    if plan.zero > 3:
        raise InputError(where, f"zero = {plan.zero}", "ZeRO has stages 0 to 3")
