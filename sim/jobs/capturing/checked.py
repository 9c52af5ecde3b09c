"""What should a reader know about the recorded step?"""

import gc
from collections import Counter
from collections.abc import Iterator
from typing import Any

from sim.jobs.capturing.log import Log
from sim.jobs.recorded.kernels import kernel_of
from sim.jobs.recorded.recording import communicates

_PARTS = {"forward": "forward pass", "backward": "backward pass", "optimizer": "optimizer step"}
_SMALL = 0.01  # shares below this value get no note


def shortcomings(log: Log, world: int) -> Iterator[str]:
    """Yield sentences on parts that the step lacks, and on its work without gradients."""
    kernels = [event for event in log.events if event.kind == "kernel"]
    done = {event.phase for event in kernels}
    for phase, named in _PARTS.items():
        if phase not in done:
            yield f"the recorded step holds no {named}"
    if world > 1 and not communicates(log.events, log.groups.entries):
        yield (
            "ranks never communicate in the recorded step: each is a job of its own that trains a "
            "model of its own, and an update learns from the samples of one rank; wrap the model "
            "(DistributedDataParallel, fully_shard) to train a single model"
        )
    yield from _asides(log, world)


def _asides(log: Log, world: int) -> Iterator[str]:
    """Yield the lines with products through which no gradient flows, and their shares."""
    flops = [kernel_of(operator).flops for operator in log.operators.entries]
    kernels, work, lines = 0, 0.0, (Counter[str](), Counter[str]())
    for number, event in enumerate(log.events):
        if event.kind != "kernel":
            continue
        kernels, work = kernels + 1, work + flops[event.operator]
        if number in log.asides:
            lines[0][log.asides[number]] += 1
            lines[1][log.asides[number]] += int(flops[event.operator])
    for line, multiplied in lines[1].items():
        shares = lines[0][line] / kernels, multiplied / max(work, 1.0)
        if multiplied and max(shares) > _SMALL:
            others = (
                "; every rank is assumed to run them (--rank 1 shows another)" if world > 1 else ""
            )
            yield (
                f"{line}: no gradient flows through {shares[0]:.0%} of the kernels of the recorded "
                f"step, {shares[1]:.0%} of its FLOPs{others}"
            )


def forgotten(held: list[Any]) -> Iterator[str]:
    """Yield a note if weights get gradients but no optimizer holds them; `held` are the optimizers'
    weights. There is no note if these weights and `held` have about equally many elements: the
    optimizers then hold copies in another precision or layout."""
    from torch import Tensor
    from torch.nn import Parameter

    known = {id(weight) for weight in held}
    modes = {id(getattr(_local(weight), "fake_mode", None)) for weight in held}
    found = [
        thing
        for thing in gc.get_objects()
        if issubclass(type(thing), Tensor)
        and isinstance(thing, Parameter)
        and id(thing) not in known
        and id(getattr(_local(thing), "fake_mode", modes)) in modes
        and thing.grad is not None
    ]
    mine, others = _elements(held), _elements(found)
    if others > _SMALL * mine and not 0.95 < others / max(mine, 1) < 1.05:
        yield (
            f"{others:,} parameters get gradients but belong to no optimizer; optimizers update "
            f"{mine:,}"
        )


def of_model(held: list[Any]) -> int:
    """The number of elements of the modules' trainable weights if optimizers hold only parts or
    copies of these weights (DeepSpeed's ZeRO). 0 if an optimizer holds a weight itself."""
    from torch.nn import Module

    known = {id(weight) for weight in held}
    modes = {id(getattr(_local(weight), "fake_mode", None)) for weight in held}
    learnt = {
        id(weight): weight
        for thing in gc.get_objects()
        if issubclass(type(thing), Module)
        for weight in thing._parameters.values()
        if weight is not None and weight.requires_grad
        if id(getattr(_local(weight), "fake_mode", None)) in modes
    }
    if known & learnt.keys():
        return 0
    return sum(int(getattr(weight, "ds_numel", weight.numel())) for weight in learnt.values())


def _elements(weights: list[Any]) -> int:
    return sum(int(_local(weight).numel()) for weight in weights)


def _local(weight: Any) -> Any:
    """The part of a weight on this rank."""
    return getattr(weight, "_local_tensor", weight)
