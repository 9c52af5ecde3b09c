"""The optimizer's part of a step: master weights, clipping, the update, freeing gradients."""

from collections.abc import Iterator
from typing import Any

import torch

from sim.analysis.calibration.training.supported_jobs import OPTIMIZERS
from sim.parallel.job import Job


class TorchOptimizer:
    """An optimizer of torch on a model's parameters; for bf16 on fp32 master weights if the stack
    keeps them (Micikevicius et al. 2018)."""

    def __init__(self, model: Any, job: Job) -> None:
        self.stack = job.stack
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        mixed = job.plan.precision == "bf16" and job.stack.master_weights
        self.updated = [_master(p) for p in self.parameters] if mixed else self.parameters
        name, own = OPTIMIZERS[job.plan.optimizer]
        kind = getattr(torch.optim, name)
        options = {"lr": 1e-4, "fused": job.stack.fused_optimizer, **own}
        if not job.stack.fused_optimizer:
            options |= {"foreach": True}
        if kind is torch.optim.AdamW:
            options |= {"capturable": job.stack.graph}
        self.optimizer = kind(self.updated, **options)

    def step(self) -> None:
        """Cast, clip, update, copy back, free the gradients (or zero them)."""
        mixed = self.updated is not self.parameters
        if mixed:
            for master, parameter in zip(self.updated, self.parameters, strict=True):
                master.grad = parameter.grad.float()
        if self.stack.clip:
            torch.nn.utils.clip_grad_norm_(self.updated, 1.0)
        self.optimizer.step()
        fresh = self.stack.fusion.gradients == "fresh"
        if mixed:
            with torch.no_grad():
                own, masters = map(local, self.parameters), map(local, self.updated)
                torch._foreach_copy_(list(own), list(masters))
            self.optimizer.zero_grad(set_to_none=True)
        for parameter in self.parameters:
            if fresh:
                parameter.grad = None
            else:
                parameter.grad.zero_()

    def tensors(self) -> Iterator[Any]:
        """Master weights and moments."""
        for state in self.optimizer.state.values():
            yield from (moment for moment in state.values() if isinstance(moment, torch.Tensor))
        if self.updated is not self.parameters:
            yield from (master.detach() for master in self.updated)


def local(tensor: Any) -> Any:
    """This rank's shard of a tensor that FSDP has sharded."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _master(parameter: Any) -> torch.nn.Parameter:
    return torch.nn.Parameter(parameter.detach().float().clone())
