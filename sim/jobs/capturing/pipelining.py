"""The passes of torch's pipeline schedules: which microbatch goes which way through which stage.

All schedules run them by three methods of a stage (torch/distributed/pipelining/stage.py):
`forward_one_chunk`, `backward_one_chunk`, which leaves the gradients of weights out where
`full_backward` is false, and `backward_weight_one_chunk`, which makes them.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from sim.jobs.capturing.log import Log
from sim.jobs.capturing.patches import Patches
from sim.jobs.recorded.recording import Pass
from sim.program.actions import Kind


def install(patches: Patches, log: Log) -> None:
    """What a stage does in one of these methods is recorded as part of that pass."""

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
        own = Pass(kind=kind(given), microbatch=number, piece=stage.stage_index)
        before, log.within = log.within, log.passes.number(own)
        try:
            return run(stage, number, *args, **given)
        finally:
            log.within = before

    return passed
