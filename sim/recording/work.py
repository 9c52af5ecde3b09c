"""What a recorded step works: FLOPs, tokens, and in which precision."""

from collections import Counter
from dataclasses import dataclass
from math import prod

from sim.model.kernels import Attention, Gemm, Precision
from sim.recording.kernels import kernel_of, short_name
from sim.recording.recording import Recording


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkDone:
    """Of one rank's step: FLOPs as publications count them (three times those of the forward
    passes, causal attention in full: PaLM's convention) and as they are executed, sequences and
    tokens, and the precision of most products. Tokens are 0 where nothing looks them up."""

    model_flops: float
    executed_flops: float
    samples: int
    tokens: int
    precision: Precision


def work_of(recording: Recording) -> WorkDone:
    """What one rank's step works."""
    kernels = [kernel_of(operator) for operator in recording.operators]
    model = executed = 0.0
    by_precision: Counter[Precision] = Counter()
    for event in recording.events:
        kernel = kernels[event.operator] if event.kind == "kernel" else None
        if not isinstance(kernel, Gemm | Attention):
            continue
        executed += kernel.flops
        by_precision[kernel.precision] += kernel.flops  # type: ignore[assignment]
        if event.phase == "forward" and not event.again:
            full = kernel.full_flops if isinstance(kernel, Attention) else kernel.flops
            model += 3.0 * full
    samples, tokens = _looked_up(recording)
    precision = by_precision.most_common(1)[0][0] if by_precision else "fp32"
    return WorkDone(
        model_flops=model,
        executed_flops=executed,
        samples=samples,
        tokens=tokens,
        precision=precision,
    )


def _looked_up(recording: Recording) -> tuple[int, int]:
    """Sequences and tokens: of the embedding that most of them are looked up in."""
    seen: Counter[int] = Counter(
        event.operator
        for event in recording.events
        if event.kind == "kernel" and event.phase == "forward" and not event.again
    )
    found = [(0, 0)]
    for number, often in seen.items():
        operator = recording.operators[number]
        indices = [one.shape for one in operator.inputs if one.dtype.startswith("int")]
        if "embedding" in short_name(operator) and indices:
            shape = max(indices, key=prod)
            rows = shape[0] if len(shape) > 1 else 1
            found.append((often * prod(shape), often * rows))
    tokens, samples = max(found)
    return samples, tokens
