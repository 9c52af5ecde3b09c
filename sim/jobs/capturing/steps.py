"""Which step is recorded? The step between the ends of the script's first two optimizer steps."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from sim.jobs.capturing.distributed import WHOLE
from sim.jobs.capturing.log import Log
from sim.jobs.capturing.patches import Patches
from sim.jobs.recorded.recording import PARTS, Pass
from sim.program.actions import Kind


class Enough(BaseException):
    """The step that counts has ended."""


class StepCounter:
    """Counts the steps of optimizers; a step inside another step counts with it."""

    def __init__(self, torch: Any) -> None:
        self.torch, self.done, self.parameters = torch, 0, 0
        self._depth, self._last = 0, 0
        self._optimizers: dict[int, Any] = {}

    @contextmanager
    def counted(self, log: Log) -> Iterator[None]:
        """Raises `Enough` at the end of the second step. Where several optimizers take turns, it is
        the second step of the last optimizer before the next backward pass."""
        from torch.optim.optimizer import (
            register_optimizer_step_post_hook,
            register_optimizer_step_pre_hook,
        )

        def begins(optimizer: Any, *_: Any) -> None:
            if not self._depth:
                log.optimizer_begins()
            self._depth += 1
            self._optimizers[id(optimizer)] = optimizer

        def ended(optimizer: Any, *_: Any) -> None:
            self._depth -= 1
            if self._depth:
                return
            log.phase = "forward"
            self._name_parts(log)
            if id(optimizer) == self._last:
                self.done, log.over = 2, True
                raise Enough
            if not self.done or not log.passed_back:
                self.done, self._last = 1, id(optimizer)
                log.begin()

        hooks = (register_optimizer_step_pre_hook(begins), register_optimizer_step_post_hook(ended))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _name_parts(self, log: Log) -> None:
        """Say which blocks hold parameters, gradients and the optimizer's state."""
        held = {
            id(weight): weight
            for optimizer in self._optimizers.values()
            for group in optimizer.param_groups
            for weight in group["params"]
        }
        weights = list(held.values())
        self.parameters = sum(int(getattr(weight, WHOLE, weight.numel())) for weight in weights)
        for weight in weights:
            self._name(log, weight, "parameters")
            self._name(log, weight.grad, "gradients")
        for optimizer in self._optimizers.values():
            for state in optimizer.state.values():
                for value in state.values():
                    self._name(log, value, "optimizer")

    def _name(self, log: Log, tensor: Any, part: str) -> None:
        local = getattr(tensor, "_local_tensor", tensor)
        if not isinstance(local, self.torch.Tensor):
            return
        if block := log.block_of(local.untyped_storage()):
            log.parts[block] = PARTS.index(part)


def install_pipelining(patches: Patches, log: Log) -> None:
    """Record the work of a pipeline stage in one of `_METHODS` as part of that pass.

    All of torch's schedules run passes by them (torch/distributed/pipelining/stage.py);
    `backward_one_chunk` leaves the gradients of weights to `backward_weight_one_chunk` where
    `full_backward` is false.
    """

    def noted(module: ModuleType) -> None:
        stage = module._PipelineStageBase
        for name, kind in _METHODS.items():
            patches.set(stage, name, _within(getattr(stage, name), kind, log))

    patches.when_imported("torch.distributed.pipelining.stage", noted)


def _backward(given: dict[str, Any]) -> Kind:
    return "B" if given.get("full_backward", True) else "I"


_METHODS: dict[str, Callable[[dict[str, Any]], Kind]] = {
    "forward_one_chunk": lambda _: "F",
    "backward_one_chunk": _backward,
    "backward_weight_one_chunk": lambda _: "W",
}


def _within(run: Callable[..., Any], kind: Callable[[dict[str, Any]], Kind], log: Log) -> Any:
    def passed(stage: Any, number: int, *args: Any, **given: Any) -> Any:
        current = Pass(kind=kind(given), microbatch=number, piece=stage.stage_index)
        before, log.within = log.within, log.passes.number(current)
        try:
            return run(stage, number, *args, **given)
        finally:
            log.within = before

    return passed
