"""How much work does a recorded step do: FLOPs, tokens, and the precision of products?"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from math import prod
from operator import attrgetter

from sim.config.dataclass import dataclass
from sim.hardware.device import Device
from sim.jobs.recorded.kernels import kernel_of, run_on, short_name
from sim.jobs.recorded.recording import Operator, Recording, Tensor
from sim.model.kernels import Attention, Kernel, MemoryBound, Precision

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkDone:
    """Work of one rank's step.

    `model_flops` are counted as in publications: three times the FLOPs of the forward passes.
    Causal attention counts in full (PaLM's convention); kernels through which no gradient flows do
    not count. The factor is below three if backward passes do less work: with frozen weights, or in
    a first layer, whose input needs no gradient. `executed_flops` are the FLOPs that run.
    `precision` is the precision with most FLOPs. `samples` and `tokens` are 0 if they are unknown.
    """

    model_flops: float
    executed_flops: float
    samples: int
    tokens: int
    precision: Precision


def work_of(recording: Recording, device: Device | None = None) -> WorkDone:
    """The work of one rank's step, in the precisions that a device knows."""
    kernels = [kernel_of(operator) for operator in recording.operators]
    if device is not None:
        kernels = [run_on(kernel, device) for kernel in kernels]
    forward = backward = executed = 0.0
    by_precision: Counter[Precision] = Counter()
    for event in recording.events:
        kernel = kernels[event.operator] if event.kind == "kernel" else None
        if kernel is None or not kernel.flops:
            continue
        if not isinstance(kernel, MemoryBound):
            by_precision[kernel.precision] += kernel.flops  # type: ignore[assignment]
        executed += kernel.flops
        full = _in_full(kernel)
        if event.phase == "forward" and not event.again and not event.aside:
            forward += full
        elif event.phase == "backward" and not event.again:
            backward += full
    samples, tokens = _learnt_from(recording)
    precision = by_precision.most_common(1)[0][0] if by_precision else "fp32"
    return WorkDone(
        model_flops=forward + min(backward, 2.0 * forward),
        executed_flops=executed,
        samples=samples,
        tokens=tokens,
        precision=precision,
    )


def _in_full(kernel: Kernel) -> float:
    """Return the FLOPs of a kernel. Attention counts all keys. Its backward pass counts twice as
    much as its forward pass, without recomputed scores."""
    if not isinstance(kernel, Attention):
        return kernel.flops
    return replace(kernel, backward=False).full_flops * (2.0 if kernel.backward else 1.0)


def _learnt_from(recording: Recording) -> tuple[int, int]:
    """Return the samples and tokens of the recording; 0 stands for an unknown number.

    The labels of a loss are counted. They are tokens if an embedding looks up equally many indices
    in sequences, or one index more in each sequence (labels are shifted). They are also tokens if
    an embedding looks up equally many in a single row, from a table with no more rows than classes.
    Other labels are samples, such as images. If no loss has labels, embeddings are counted
    (`_looked_up`). Samples that a loader has counted take precedence.
    """
    forward = [e for e in recording.events if e.kind == "kernel" and e.phase == "forward"]
    seen = Counter(event.operator for event in forward if not event.again)
    losses = _labels(recording, seen)
    samples = tokens = 0
    if losses:
        rows = {
            indices: table.shape[0]
            for number in seen
            for indices, table in _tables(recording.operators[number])
        }
        samples, tokens = _of_losses(losses, rows)
    else:
        samples, tokens = _looked_up(recording)
    return recording.samples or samples, tokens


def _labels(recording: Recording, seen: Mapping[int, int]) -> list[tuple[Shape, int, int]]:
    """Return the shape of each loss's labels, how often the loss runs, and its classes."""
    found = []
    for number, often in seen.items():
        operator = recording.operators[number]
        indices = [tensor.shape for tensor in operator.inputs if tensor.dtype == "int64"]
        if "nll_loss" in operator.name and "backward" not in operator.name and indices:
            labels = max(indices, key=prod)
            scores = next((t.shape for t in operator.inputs if prod(t.shape) > prod(labels)), (0,))
            found.append((labels, often, scores[1] if len(scores) > 1 else 0))
    return found


def _tables(operator: Operator) -> list[tuple[Shape, Tensor]]:
    """Return the shape of an embedding's indices and its table; empty for other operators."""
    indices = [tensor.shape for tensor in operator.inputs if tensor.dtype.startswith("int")]
    tables = [tensor for tensor in operator.inputs if not tensor.dtype.startswith("int")]
    if "embedding" not in operator.name or not indices or not tables:
        return []
    return [(max(indices, key=prod), max(tables, key=lambda table: prod(table.shape)))]


def _of_losses(losses: list[tuple[Shape, int, int]], rows: Mapping[Shape, int]) -> tuple[int, int]:
    sequences = sorted((shape for shape in rows if len(shape) > 1), key=prod, reverse=True)
    samples = tokens = 0
    for labels, often, classes in losses:
        count = often * prod(labels)
        for shape in sequences:
            whole, shifted = prod(shape), prod(shape) - prod(shape[:-1])
            part = next((n for n in (whole, shifted) if n and count % n == 0), 0)
            if part:
                tokens += count // part * whole
                samples += count // part * prod(shape[:-1])
                break
        else:
            if labels in rows and classes >= rows[labels]:  # sequences are packed into a row
                samples, tokens = samples + often, tokens + count
            elif not sequences:
                samples += often * labels[0]
    return samples, tokens


def _looked_up(recording: Recording) -> tuple[int, int]:
    """Return the sequences and tokens that embeddings look up, from indices of several rows.

    In each run of consecutive forward kernels (of one or several microbatches) the embedding with
    most lookups counts, frozen or not. If gradients of embeddings show that the step learns from
    some of the tokens, only these tokens count. A model that only judges looks up tokens, too.
    """
    kernels = (event for event in recording.events if event.kind == "kernel" and not event.again)
    learnt, done = Counter[Shape](), Counter[Shape]()
    forward = []
    for phase, stretch in groupby(kernels, key=attrgetter("phase")):
        numbers = [event.operator for event in stretch]
        if phase == "backward":
            learnt.update(_lookups(recording, numbers, "embedding_dense_backward"))
        elif phase == "forward":
            forward.append(_lookups(recording, numbers, "embedding"))
            done.update(forward[-1])
    seen = {shape: min(often, done[shape]) for shape, often in learnt.items() if done[shape]}
    usual = sum(seen.values()) / sum(done[shape] for shape in seen) if seen else 1.0
    samples = tokens = 0.0
    for lookups in forward:
        found = [(0.0, 0.0)]
        for shape, often in lookups.items():
            count = often * (seen[shape] / done[shape] if shape in seen else usual)
            found.append((count * prod(shape), count * prod(shape[:-1])))
        most = max(found)
        tokens, samples = tokens + most[0], samples + most[1]
    return round(samples), round(tokens)


def _lookups(recording: Recording, numbers: Sequence[int], name: str) -> dict[Shape, int]:
    """Return how often operators of this name look up indices of each shape. Several tables for the
    same indices count once."""
    found: dict[Shape, int] = {}
    for number, often in Counter(numbers).items():
        operator = recording.operators[number]
        indices = [tensor.shape for tensor in operator.inputs if tensor.dtype.startswith("int")]
        shape = max(indices, key=prod, default=())
        if name in short_name(operator) and len(shape) > 1:
            found[shape] = min(found.get(shape, often), often)
    return found
