"""What a recorded step works: FLOPs, tokens, and in which precision."""

from collections import Counter
from dataclasses import dataclass, replace
from itertools import groupby
from math import prod
from operator import attrgetter

from sim.hardware.kernels.dispatch import Phase
from sim.model.kernels import Attention, Gemm, Precision
from sim.recording.kernels import kernel_of, short_name
from sim.recording.recording import Recording


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkDone:
    """Of one rank's step: FLOPs as publications count them (three times those of the forward
    passes, causal attention in full: PaLM's convention; fewer where weights or whole models are
    frozen, whose backward passes do less, and by the gradient that a first layer on data does not
    pass on) and as they are executed, sequences and tokens, and the precision of most products.
    Tokens are 0 where nothing looks them up."""

    model_flops: float
    executed_flops: float
    samples: int
    tokens: int
    precision: Precision


def work_of(recording: Recording) -> WorkDone:
    """What one rank's step works."""
    kernels = [kernel_of(operator) for operator in recording.operators]
    forward = backward = executed = 0.0
    by_precision: Counter[Precision] = Counter()
    for event in recording.events:
        kernel = kernels[event.operator] if event.kind == "kernel" else None
        if not isinstance(kernel, Gemm | Attention):
            continue
        executed += kernel.flops
        by_precision[kernel.precision] += kernel.flops  # type: ignore[assignment]
        full = _in_full(kernel)
        if event.phase == "forward" and not event.again:
            forward += full
        elif event.phase == "backward" and not event.again:
            backward += full
    samples, tokens = _looked_up(recording)
    precision = by_precision.most_common(1)[0][0] if by_precision else "fp32"
    return WorkDone(
        model_flops=forward + min(backward, 2.0 * forward),
        executed_flops=executed,
        samples=samples,
        tokens=tokens,
        precision=precision,
    )


def _in_full(kernel: Gemm | Attention) -> float:
    """Attention over all keys; back, twice the forward pass: no scores made again."""
    if isinstance(kernel, Gemm):
        return kernel.flops
    return replace(kernel, backward=False).full_flops * (2.0 if kernel.backward else 1.0)


def _looked_up(recording: Recording) -> tuple[int, int]:
    """Sequences and tokens, of those that are learnt from where that is seen: a model that only
    judges looks them up, too."""
    learnt = _counted(recording, "backward", "embedding_dense_backward")
    return learnt if learnt[1] else _counted(recording, "forward", "embedding")


def _counted(recording: Recording, phase: Phase, name: str) -> tuple[int, int]:
    """Sequences and tokens of operators of this name: in each stretch of a phase (a microbatch, or
    several) of the embedding that most of them are looked up in."""
    samples = tokens = 0
    kernels = (event for event in recording.events if event.kind == "kernel")
    for own, stretch in groupby(kernels, key=attrgetter("phase")):
        if own != phase:
            continue
        seen = Counter(event.operator for event in stretch if not event.again)
        found = [(0, 0)]
        for number, often in seen.items():
            operator = recording.operators[number]
            indices = [one.shape for one in operator.inputs if one.dtype.startswith("int")]
            if name in short_name(operator) and indices:
                shape = max(indices, key=prod)
                rows = shape[0] if len(shape) > 1 else 1
                found.append((often * prod(shape), often * rows))
        most = max(found)
        tokens, samples = tokens + most[0], samples + most[1]
    return samples, tokens
