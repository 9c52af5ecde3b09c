"""Edits that compute products in fewer bits, with the casts that torch then makes."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from sim.jobs.recorded.axes import Axes
from sim.jobs.recorded.edits.edit import (
    Edit,
    kernel_events,
    most,
    place_of,
    rewritten,
    seconds_by_line,
)
from sim.jobs.recorded.kernels import kernel_of, short_name
from sim.jobs.recorded.recording import Event, Operator, Recording, Tensor
from sim.jobs.recorded.setup import Recorded
from sim.model.kernels import Attention, Gemm

_LEAST = 1024  # rows, columns and depth of a product that is worth casts to fp8
_FLOATS = ("float32", "bfloat16")
_FP8 = "float8_e4m3fn"


def edits(setup: Recorded) -> Iterator[Edit]:
    """Yield edits that run products of fp32 in tf32 or bf16, and products of bf16 in fp8, if the
    device has these precisions."""
    known = setup.machine.topology.device.peak.known
    if "tf32" in known and (line := _longest(setup, _is_fp32)):
        yield Edit(
            change='torch.set_float32_matmul_precision("high") and, for convolutions, '
            "torch.backends.cudnn.allow_tf32 = True",
            why="products are computed in fp32, without tensor cores",
            line=line,
            made=in_tf32,
        )
    if "bf16" in known and (line := _longest(setup, _is_single)):
        yield Edit(
            change='run the forward pass in torch.autocast("cuda", dtype=torch.bfloat16)',
            why="products read and write fp32",
            line=line,
            at=place_of(setup, "call"),
            made=in_bf16,
        )
    if "fp8" in known and (line := _longest(setup, _is_wide)):
        yield Edit(
            change="convert_to_float8_training(model) of torchao.float8",
            why="products of bf16 are large enough to be worth their casts to fp8",
            line=line,
            at=place_of(setup, "wrapper", "optimizer"),
            made=in_fp8,
        )


def in_tf32(recording: Recording, axes: Axes) -> Recording:
    """The recording in which products of fp32 operands run in tf32."""
    operators = (
        replace(operator, flags={**operator.flags, "tf32": True})
        if _is_fp32(operator)
        else operator
        for operator in recording.operators
    )
    return replace(recording, operators=tuple(operators))


def in_bf16(recording: Recording, axes: Axes) -> Recording:
    """The recording in which products and attention of fp32 read and write bf16. A forward pass
    casts the operands of its products, a backward pass casts the results. Memory is left unchanged,
    though torch would need less."""
    return _cast(recording, _is_single, lambda t: replace(t, dtype="bfloat16", width=2), passes=1)


def in_fp8(recording: Recording, axes: Axes) -> Recording:
    """The recording in which large products of bf16 read fp8. Each operand is read once to find its
    largest value, and once to be cast. Results stay in bf16."""
    return _cast(recording, _is_wide, lambda t: replace(t, dtype=_FP8, width=1), passes=2)


def _cast(
    recording: Recording,
    chosen: Callable[[Operator], bool],
    narrow: Callable[[Tensor], Tensor],
    passes: int,
) -> Recording:
    """The recording in which the `chosen` operators have the operands that `narrow` makes. A cast
    reads its tensor `passes` times; if `passes` is 1, results are narrow, too."""
    operators: list[Operator] = []
    numbers: dict[tuple[int, bool], tuple[list[int], int]] = {}
    new: dict[int, tuple[Event, ...]] = {}

    def added(operator: Operator) -> int:
        operators.append(operator)
        return len(recording.operators) + len(operators) - 1

    for number, event, operator in kernel_events(recording):
        if not chosen(operator):
            continue
        back = event.phase == "backward" and not event.again and passes == 1
        if (event.operator, back) not in numbers:
            ends = operator.outputs if back else operator.inputs
            # Attention needs no casts, as products have written its operands.
            product = isinstance(kernel_of(operator), Gemm)
            cast = [t for t in ends if len(t.shape) > 1 and t.dtype in _FLOATS] if product else []
            casts = [added(_copy(tensor, narrow(tensor), passes)) for tensor in cast]
            numbers[event.operator, back] = casts, added(_narrowed(operator, narrow, passes))
        casts, narrowed = numbers[event.operator, back]
        made = [replace(event, operator=cast, reads=(), views=0) for cast in casts]
        replaced = replace(event, operator=narrowed)
        new[number] = (replaced, *made) if back else (*_reading(event, made), replaced)
    return rewritten(recording, new, operators=operators)


def _reading(event: Event, casts: list[Event]) -> list[Event]:
    """The casts; the first cast waits for the collectives whose results the product reads."""
    return [replace(cast, reads=event.reads if n == 0 else ()) for n, cast in enumerate(casts)]


def _copy(wide: Tensor, narrow: Tensor, passes: int) -> Operator:
    return Operator(
        name="aten._to_copy", inputs=(wide,) * passes, outputs=(narrow,), written=narrow.bytes
    )


def _narrowed(operator: Operator, narrow: Callable[[Tensor], Tensor], passes: int) -> Operator:
    """The operator on narrow operands; if `passes` is 1 (bf16), its results are narrow, too."""
    outputs = operator.outputs if passes > 1 else tuple(map(_single(narrow), operator.outputs))
    flags = {key: value for key, value in operator.flags.items() if key != "tf32"}
    return replace(
        operator,
        inputs=tuple(map(_single(narrow), operator.inputs)),
        outputs=outputs,
        written=sum(tensor.bytes for tensor in outputs),
        flags=flags,
    )


def _single(narrow: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Apply `narrow` to tensors of floats with two or more dimensions, not to other tensors."""

    def changed(tensor: Tensor) -> Tensor:
        return narrow(tensor) if len(tensor.shape) > 1 and tensor.dtype in _FLOATS else tensor

    return changed


def _is_fp32(operator: Operator) -> bool:
    kernel = kernel_of(operator)
    return isinstance(kernel, Gemm) and kernel.precision == "fp32" and _is_single(operator)


def _is_single(operator: Operator) -> bool:
    """Whether an operator is a product or attention that reads fp32."""
    kernel = kernel_of(operator)
    return (
        isinstance(kernel, Gemm | Attention)
        and operator.inputs[-1 if isinstance(kernel, Gemm) else 0].dtype == "float32"
    )


def _is_wide(operator: Operator) -> bool:
    kernel = kernel_of(operator)
    linear = short_name(operator) in ("mm", "addmm")
    return (
        linear
        and isinstance(kernel, Gemm)
        and kernel.precision == "bf16"
        and min(kernel.m, kernel.n, kernel.k) >= _LEAST
    )


def _longest(setup: Recorded, chosen: Callable[[Operator], bool]) -> str:
    """The line that spends most seconds in `chosen` operators; "" if there is none."""
    operators = (operator for recording, _ in setup.stages for operator in recording.operators)
    marked = {id(operator) for operator in operators if chosen(operator)}
    return most(seconds_by_line(setup, lambda _, operator: id(operator) in marked))
