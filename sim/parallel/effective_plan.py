"""The effective plan: each choice of the plan, or else that of the software stack."""

from functools import cached_property
from typing import Literal

from sim.config.dataclass import dataclass
from sim.hardware.device import Device
from sim.hardware.stack import Stack
from sim.model.fusion import Context
from sim.model.kernels import Precision
from sim.model.model import Model
from sim.parallel.mesh import dividing
from sim.parallel.plan import WHOLE, Plan
from sim.program.routed import Dispatcher


@dataclass(frozen=True)
class EffectivePlan:
    """A plan of a model, and the stack and device that it is for."""

    model: Model
    plan: Plan
    stack: Stack
    device: Device

    @property
    def user_buffers(self) -> bool:
        """Whether tensor-parallel collectives run in pieces beside products; beside adapters where
        the plan says so (Megatron-Bridge's recipes of LoRA: tp_comm_overlap = False)."""
        if self.plan.tp_comm_overlap is not None:
            return self.plan.tp_comm_overlap
        return self.stack.fusion.user_buffers and self.plan.lora is None

    @property
    def dispatcher(self) -> Dispatcher:
        """How tokens reach experts."""
        return self.plan.dispatcher or self.stack.dispatcher

    @cached_property
    def overlaps_shared(self) -> bool:
        """Whether shared experts run beside tokens under way."""
        if self.plan.overlap_shared is not None:
            return self.plan.overlap_shared
        offered = self.stack.overlap_shared and self.dispatcher == "flat"
        return offered and not any(self.plan.passes().pairs)

    @property
    def overlaps_gradients(self) -> bool:
        """Whether gradients are reduced beside the last backward pass."""
        return self.stack.overlap_gradients and (self.stack.overlap_sharded or not self.plan.zero)

    @property
    def overlaps_gather(self) -> bool:
        """Whether ZeRO-1 and 2 gather updated weights beside the next step's first passes: not
        where a pipeline does not drain, whose next passes still use an older version."""
        return self.stack.overlap_gather and not self.plan.versions(0)

    @cached_property
    def kernels_on(self) -> Device:
        """The device without the SMs that the stack sets aside."""
        return self.device.without(self.stack.fusion.reserved_sms)

    @property
    def host(self) -> Stack:
        """The stack as it launches passes."""
        paced = self.stack.paced(self.device.host)
        return paced.in_graph if WHOLE in self.plan.cuda_graph else paced

    @property
    def host_ranks(self) -> int:
        """Ranks that each offload a share of a layer's activations to their hosts."""
        return self.plan.tp if self.stack.checkpointing.on_host else 1

    @property
    def context(self) -> Context:
        """How attention reaches the rest of its sequence along `cp`."""
        return self.plan.context or self.stack.context

    @property
    def sequence_axes(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The axes that divide the sequence: axes that share keys, and axes that exchange heads."""
        heads = {"ulysses", *(("cp",) if self.context == "ulysses" else ())}
        axes = dividing("sequence")
        return tuple(a for a in axes if a not in heads), tuple(a for a in axes if a in heads)

    @property
    def kept_precision(self) -> Precision:
        """That of weights and gradients between passes: FSDP's shards of parameters are as they
        were made, in fp32, and what is gathered is cast (`MixedPrecision.param_dtype`)."""
        cast = self.plan.zero >= 3 and self.stack.sharding != "in-place"
        return "fp32" if cast else self.plan.precision

    @property
    def reshard(self) -> bool | Literal["near"]:
        """Whether gathered weights are given back behind a forward pass: not in pipelines, unless
        the plan says so (pytorch/torchtitan, models/llama3/infra/parallelize.py, apply_fsdp:
        `reshard_after_forward = not pp_enabled`)."""
        return self.plan.pp == 1 if self.plan.reshard is None else self.plan.reshard

    @property
    def no_sync(self) -> bool:
        """Whether sharded gradients are reduced behind the last micro-step only: in pipelines,
        unless the plan says otherwise (torch/distributed/pipelining/stage.py,
        backward_maybe_with_nosync: `set_requires_gradient_sync(False)`)."""
        return self._sums_up if self.plan.no_sync is None else self.plan.no_sync

    @property
    def reduces_last(self) -> bool:
        """Whether they are reduced unit by unit behind a pass instead of beside it: torch's
        pipelines ask FSDP for that once a stage has no pass left (the same file,
        `perform_reduce_grad`)."""
        return self._sums_up and self.no_sync

    @property
    def _sums_up(self) -> bool:
        return self.plan.pp > 1 and self.plan.zero >= 2

    @property
    def prefetch(self) -> int:
        """Units of ZeRO-3 that are gathered ahead of the unit that computes."""
        return self.stack.prefetch if self.plan.prefetch is None else self.plan.prefetch
