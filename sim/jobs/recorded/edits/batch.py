"""Edits that run the same step with more samples at once.

A recording has shapes, but no symbols for the batch. A dimension grows with the batch if its size
is the number of samples, or of samples times tokens. It must be the first dimension of its tensor,
or a dimension of a product. Operators of the optimizer keep their sizes, and so do tensors with the
shape of a parameter. If a width of the model equals one of these numbers, shapes are ambiguous. A
recording with more than a few ambiguous bytes is refused.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from math import prod

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.jobs.recorded.axes import DATA_AXIS, REPLICAS_AXIS, Axes
from sim.jobs.recorded.edits.edit import Edit, kernel_events
from sim.jobs.recorded.kernels import RECURRENT, kernel_of, short_name
from sim.jobs.recorded.recording import PARTS, Allocation, Event, Operator, Recording, Tensor
from sim.jobs.recorded.setup import Recorded
from sim.jobs.recorded.work import work_of
from sim.model.kernels import Attention, Gemm

TIMES = (2.0, 4.0, 8.0)
_AMBIGUOUS = 0.02  # the largest share of ambiguous bytes in a step
_PRODUCTS = ("mm", "addmm", "_scaled_mm")
_HELD = tuple(PARTS.index(part) for part in ("activations", "temporary"))


def edits(setup: Recorded) -> Iterator[Edit]:
    """Yield edits with two, four and eight times the batch."""
    try:
        sizes = [batch_of(recording, axes) for recording, axes in setup.stages]
    except InputError:
        return
    for times in TIMES:
        yield Edit(
            change=f"{times * sizes[0].samples:,.0f} samples a microbatch in place of "
            f"{sizes[0].samples:,}",
            why="larger products run faster, and more samples share the work done once a step; an "
            "update then learns from more samples, which may change the loss",
            made=partial(with_batch, times=times),
            samples=times,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The `samples` of a microbatch, sizes of dimensions that grow with them (`rows`), and shapes
    of `parameters`."""

    samples: int
    rows: frozenset[int]
    parameters: frozenset[tuple[int, ...]]


def batch_of(recording: Recording, axes: Axes) -> Batch:
    """The sizes in a recording that grow with its batch. Raises `InputError` if the shapes of its
    tensors do not show the batch."""
    samples, tokens = _sizes(recording)
    if not samples:
        raise _refused(recording, "no embedding and no copy from the host shows its batch")
    if any(short_name(operator) == "_grouped_mm" for operator in recording.operators):
        raise _refused(recording, "the tokens of its experts are no multiple of its batch")
    if any(short_name(operator) in RECURRENT for operator in recording.operators):
        raise _refused(recording, "states of recurrent layers have the batch as second dimension")
    each = {1, tokens, tokens - 1, tokens + 1} - {0}
    sizes = [size for axis, size in axes.mesh.items() if axis not in (DATA_AXIS, REPLICAS_AXIS)]
    each |= {n // size for n in list(each) for size in sizes if n % size == 0}
    rows = {samples * n for n in each if samples * n > 1 or n == 1}
    heads = set(_heads(recording, samples))
    found = Batch(
        samples=samples,
        rows=frozenset(rows | {samples * n for n in heads}),
        parameters=frozenset(_parameters(recording)),
    )
    _check(recording, found)
    return found


def _heads(recording: Recording, samples: int) -> Iterator[int]:
    """Yield the heads of attention, or, for attention by hand, of the scores that a softmax
    reads: batched products have samples times heads as first dimension."""
    for operator in recording.operators:
        if isinstance(kernel := kernel_of(operator), Attention):
            yield kernel.heads
        elif short_name(operator) == "_softmax" and operator.inputs:
            count = prod(operator.inputs[0].shape[:-2])
            if count % samples == 0:
                yield count // samples


def with_batch(recording: Recording, axes: Axes, times: float) -> Recording:
    """The recording with `times` as many samples a microbatch. Raises `InputError`."""
    batch = batch_of(recording, axes)
    optimizer = {
        event.operator for _, event, _ in kernel_events(recording) if event.phase == "optimizer"
    }
    growing = {
        event.operator for _, event, _ in kernel_events(recording) if event.phase != "optimizer"
    }
    operators = list(recording.operators)
    new: dict[int, int] = {}
    for number in sorted(growing):
        grown = _grown(recording.operators[number], batch, times)
        if number in optimizer:  # the optimizer uses the same operator, which keeps its shapes
            new[number] = len(operators)
            operators.append(grown)
        else:
            operators[number] = grown
    events = tuple(_event(event, axes, new, times) for event in recording.events)
    changed = replace(recording, operators=tuple(operators), events=events)
    return replace(changed, memory=tuple(_memory(recording, changed, times)))


def _event(event: Event, axes: Axes, new: Mapping[int, int], times: float) -> Event:
    if event.kind == "kernel" and event.phase != "optimizer" and event.operator in new:
        return replace(event, operator=new[event.operator])
    data = event.kind == "collective" and {DATA_AXIS, REPLICAS_AXIS} & {*axes.of[event.group]}
    return replace(event, bytes=event.bytes * times) if event.bytes and not data else event


def _sizes(recording: Recording) -> tuple[int, int]:
    """The samples of a microbatch and the tokens of a sample. The shapes of an embedding's indices
    show them; without embeddings, convolutions, copies from the host or losses."""
    looked_up = Counter[tuple[int, ...]]()
    copied = Counter[tuple[int, ...]]()
    for _, event, operator in kernel_events(recording):
        if event.phase == "forward" and short_name(operator) == "embedding":
            looked_up.update(
                t.shape for t in operator.inputs if t.dtype[:3] == "int" and len(t.shape) == 2
            )
        elif short_name(operator) == "_to_copy" and not operator.inputs:
            copied.update(t.shape for t in operator.outputs if t.shape)
    if looked_up:
        samples, tokens = max(looked_up, key=prod)
        return samples, tokens
    shape = max(copied, key=lambda shape: (prod(shape), shape), default=())
    images = [
        operator.inputs[0].shape[0]
        for operator in recording.operators
        if short_name(operator) == "convolution"
    ]
    if images:
        return max(images), 1
    whole = work_of(recording).samples
    return (shape[0], shape[1] if len(shape) == 2 else 1) if shape else (whole, 1)


def _parameters(recording: Recording) -> set[tuple[int, ...]]:
    """Shapes of the optimizer's operands, of embedding tables and of convolutions' weights, and the
    transposed shapes of matrices."""
    shapes = {
        t.shape for _, e, o in kernel_events(recording) if e.phase == "optimizer" for t in o.inputs
    }
    for operator in recording.operators:
        name = short_name(operator)
        if name in ("embedding", "embedding_dense_backward"):
            shapes.add(
                operator.inputs[0].shape if name == "embedding" else operator.outputs[0].shape
            )
        elif name == "convolution":
            shapes.add(operator.inputs[1].shape)
    return shapes | {shape[::-1] for shape in shapes if len(shape) == 2}


def _check(recording: Recording, batch: Batch) -> None:
    """Raise `InputError` if many bytes have a shape that could belong to a parameter or to an
    activation."""
    total = ambiguous = 0.0
    for _, event, operator in kernel_events(recording):
        if event.phase == "optimizer" or isinstance(kernel_of(operator), Gemm | Attention):
            continue
        for tensor in (*operator.inputs, *operator.outputs):
            total += tensor.bytes
            if tensor.shape and tensor.shape[0] in batch.rows and tensor.shape in batch.parameters:
                ambiguous += tensor.bytes
    if ambiguous > _AMBIGUOUS * total:
        reason = "a dimension of its parameters is as large as its batch"
        raise _refused(recording, f"{reason}, and shapes do not tell them apart")


def _refused(recording: Recording, why: str) -> InputError:
    return InputError(recording.script, why, "record it with the other batch")


def _grown(operator: Operator, batch: Batch, times: float) -> Operator:
    """An operator of a forward or backward pass with more samples."""
    kernel, name = kernel_of(operator), short_name(operator)
    if operator.name.startswith("fsdp."):  # copies of weights and gradients
        return operator
    if name in _PRODUCTS and isinstance(kernel, Gemm):
        return _product(operator, kernel, batch, times)
    if name.startswith("convolution"):  # operands: (gradient,) image, weight
        count = 2 if name.endswith("backward") else 1
        written = operator.outputs[0].shape if operator.outputs else ()
        return replace(
            operator,
            inputs=tuple(
                _first(t, times) if n < count else t for n, t in enumerate(operator.inputs)
            ),
            outputs=tuple(
                _first(t, times) if n == 0 else t for n, t in enumerate(operator.outputs)
            ),
            written=operator.written * (times if len(written) > 1 else 1.0),
        )
    inputs, outputs = (
        tuple(_tensor(t, batch, times) for t in tensors)
        for tensors in (operator.inputs, operator.outputs)
    )
    before = sum(t.bytes for t in operator.outputs) or sum(t.bytes for t in operator.inputs[:1])
    after = sum(t.bytes for t in outputs) or sum(t.bytes for t in inputs[:1])
    grown = after / before if before else 1.0
    return replace(operator, inputs=inputs, outputs=outputs, written=operator.written * grown)


def _product(operator: Operator, kernel: Gemm, batch: Batch, times: float) -> Operator:
    """A product with more samples. Its rows grow if it makes a result or the gradient of its input;
    its depth grows if it makes the gradient of its weights. Its FLOPs grow equally."""
    *rest, x, y = operator.inputs if "add" in short_name(operator) else (None, *operator.inputs[:2])
    scales = operator.inputs[2:] if "add" not in short_name(operator) else ()
    (m, k), n = x.shape[-2:], y.shape[-1]  # type: ignore[union-attr]
    rows = batch.rows
    deep = k in rows and (
        m not in rows or (operator.outputs and operator.outputs[0].shape in batch.parameters)
    )
    a, b, c = (1.0, times, 1.0) if deep else (times, 1.0, 1.0) if m in rows else (1.0, 1.0, times)
    if not {m, k, n} & rows:
        a = b = c = 1.0
    x, y = _sized(x, a, b), _sized(y, b, c)  # type: ignore[arg-type]
    outputs = tuple(_sized(t, a, c) for t in operator.outputs)
    head = tuple(t for t in rest if t is not None)
    return replace(
        operator,
        inputs=(*head, x, y, *scales),
        outputs=outputs,
        written=operator.written * a * c,
    )


def _sized(tensor: Tensor, rows: float, columns: float) -> Tensor:
    *outer, m, n = tensor.shape
    elements = tensor.elements if tensor.elements < 0 else round(tensor.elements * rows * columns)
    return replace(tensor, shape=(*outer, round(m * rows), round(n * columns)), elements=elements)


def _tensor(tensor: Tensor, batch: Batch, times: float) -> Tensor:
    if not tensor.shape or tensor.shape in batch.parameters:
        return tensor
    if tensor.shape[0] in batch.rows:
        return _first(tensor, times)
    if len(tensor.shape) == 2 and tensor.shape[1] in batch.rows:
        return _sized(tensor, 1.0, times)
    return tensor


def _first(tensor: Tensor, times: float) -> Tensor:
    first, *rest = tensor.shape
    elements = tensor.elements if tensor.elements < 0 else round(tensor.elements * times)
    return replace(tensor, shape=(round(first * times), *rest), elements=elements)


def _memory(before: Recording, after: Recording, times: float) -> Iterator[Allocation]:
    """Yield the memory with larger blocks. A block as large as a result of its event grows like
    that result. Other blocks grow like the fastest-growing result of their event. Blocks from
    before the recorded step grow like blocks of equal size in the step."""
    sizes: dict[int, dict[int, float]] = {}
    for number, (event, then) in enumerate(zip(before.events, after.events, strict=True)):
        if event.kind == "kernel":
            old, new = before.operators[event.operator], after.operators[then.operator]
            pairs = zip(old.outputs, new.outputs, strict=True)
            sizes[number] = {round(a.bytes): b.bytes / a.bytes for a, b in pairs if a.bytes}
        elif event.bytes:
            sizes[number] = {round(event.bytes): then.bytes / event.bytes}
    grown = {
        row.bytes: factor
        for row in before.memory
        if row.bytes > 0 and (factor := _factor(row, sizes.get(row.event, {}))) != 1.0
    }
    for row in before.memory:
        known = sizes.get(row.event, {}) if row.event >= 0 else grown
        factor = _factor(row, known)
        yield replace(row, bytes=max(round(row.bytes * factor), 1)) if factor != 1.0 else row


def _factor(row: Allocation, known: Mapping[int, float]) -> float:
    """The factor by which a block grows; `known` maps a result's bytes to its factor."""
    if row.bytes <= 0 or row.part not in _HELD:
        return 1.0
    usual = 1.0 if row.event < 0 else max(known.values(), default=1.0)
    return known.get(row.bytes, usual)
