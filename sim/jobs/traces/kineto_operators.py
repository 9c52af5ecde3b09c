"""In a trace of PyTorch's profiler, how long did operators occupy the host, and which kernels did
they launch?

Operators are counted as in a recording. Of the operators around a launch, the outermost operator
with a kernel of its own counts (`sim.jobs.recorded.kernels.has_kernel`). If none has a kernel of
its own, the innermost operator counts. Of nested copies and fills, the outermost counts. A CPU's
trace has no launches, so no operator counts as launching.

Host: the seconds of an operator reach from the end of the operator before it to its own end, except
for calls in which the host waits. Views, Python and the autograd engine thus count for the operator
that follows, as in a profile's table of host times. The first operator after an optimizer's step
counts from its own beginning. Threads take turns and are read as a single thread.

Kernels (`record_shapes=True`): an operator's shapes tell which kernel `sim.hardware` times, as in a
recording. The kernel's seconds are the sum over all kernels that the operator launched; on CPUs
they are the operator's own seconds.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import repeat
from math import prod
from typing import Any, NamedTuple

from sim.config.dataclass import dataclass
from sim.hardware.kernels.dispatch import Phase, fused_as_one
from sim.jobs.recorded.kernels import has_kernel, kernel_of, of_own_use
from sim.jobs.recorded.recording import Operator, Tensor, covered
from sim.jobs.recorded.trace_nodes import DTYPES, ENGINE
from sim.jobs.traces.described import CALLS, Event, correlation_of
from sim.jobs.traces.described import DTYPES as WIDTHS
from sim.model.kernels import Attention, Gemm, Kernel, MemoryBound

# cuBLAS, cuDNN and CUTLASS: products of fp32 on tensor cores (mma.m16n8k8 and k16 of tf32).
_TF32 = re.compile(r"tf32|tensorop_s(1688|16816)(gemm|fprop|dgrad|wgrad)")
_PHASES: dict[str, Phase] = {ENGINE: "backward", "Optimizer.step": "optimizer"}


class HostCall(NamedTuple):
    """A call of an operator in a phase, and the host's seconds for it."""

    operator: str
    phase: Phase
    seconds: float


@dataclass(frozen=True, slots=True)
class Launching:
    """An operator that launches kernels, and the correlation `numbers` of their launches."""

    operator: Event
    phase: Phase
    numbers: list[Any]

    @property
    def span(self) -> tuple[float, float]:
        """When the operator began and ended (us)."""
        return float(self.operator["ts"]), _end(self.operator)


def host_calls(events: Sequence[Event]) -> Iterator[HostCall]:
    """The calls in a trace's `events` (`sim.jobs.traces.kineto.events_of`), in the host's order."""
    waits = [e for e in events if e.get("cat") in CALLS and "Synchronize" in e["name"]]
    spans = sorted((e["ts"], e["ts"] + e.get("dur", 0.0)) for e in waits)
    calls = sorted(launching(events), key=lambda call: call.span)
    at = calls[0].span[0] if calls else 0.0  # the first operator counts from its own beginning
    before, place = "optimizer", 0
    for call in calls:
        alone = call.phase == "forward" and before == "optimizer"
        (start, end), waited = call.span, 0.0
        begin = start if alone else at
        while place < len(spans) and spans[place][0] < end:
            waited += max(spans[place][1] - max(spans[place][0], begin), 0.0)
            place += 1
        if end > begin + waited:
            name = fused_as_one(_name(call.operator))
            yield HostCall(name, call.phase, (end - begin - waited) * 1e-6)
        at, before = max(at, end), call.phase


def launching(events: Sequence[Event]) -> Iterator[Launching]:
    """Yield every operator that launches kernels, once."""
    kernels = {correlation_of(e) for e in events if e.get("cat") == "kernel"}
    wanted = (
        event
        for event in events
        if event.get("cat") == "cpu_op"
        or event["name"].startswith("Optimizer.step")
        or (event.get("cat") in CALLS and correlation_of(event) in kernels)
    )
    for thread in _threads(wanted):
        yield from _launching_on(thread)


def _threads(events: Iterable[Event]) -> Iterator[list[Event]]:
    """The events of each thread, outer events before the events inside them."""
    threads: defaultdict[object, list[Event]] = defaultdict(list)
    for event in events:
        threads[event.get("pid"), event.get("tid")].append(event)
    for thread in threads.values():
        yield sorted(thread, key=lambda event: (event["ts"], -event.get("dur", 0.0)))


def _launching_on(events: list[Event]) -> list[Launching]:
    opened: list[Event] = []
    known: dict[int, Launching] = {}
    for event in events:
        while opened and _end(opened[-1]) <= event["ts"]:
            opened.pop()
        if event.get("cat") not in CALLS:
            opened.append(event)
            continue
        operator = _operator([outer for outer in opened if outer["name"].startswith("aten::")])
        if operator is not None:
            call = known.setdefault(id(operator), Launching(operator, _phase(opened), []))
            call.numbers.append(correlation_of(event))
    return list(known.values())


def _operator(around: list[Event]) -> Event | None:
    """The operator, among those around a launch, that a recording would hold."""
    for event in around:
        if has_kernel(_name(event)):
            return event
    last = len(around) - 1
    while last > 0 and of_own_use(_name(around[last])) and of_own_use(_name(around[last - 1])):
        last -= 1
    return around[last] if around else None


def _phase(around: Iterable[Event]) -> Phase:
    names = [event["name"] for event in around]
    for start, phase in _PHASES.items():
        if any(name.startswith(start) for name in names):
            return phase
    return "forward"


def _name(event: Event) -> str:
    return str(event["name"]).rpartition("::")[2]


def _end(event: Event) -> float:
    return float(event["ts"] + event.get("dur", 0.0))


def timed_kernels(events: Sequence[Event]) -> Iterator[tuple[Kernel, float]]:
    """Each operator that is a product or attention of known shape, or elementwise work in a single
    kernel, with its seconds (`sim.jobs.traces.kineto.events_of` gives the events)."""
    if not any(event.get("cat") == "kernel" for event in events):
        for thread in _threads(event for event in events if event.get("cat") == "cpu_op"):
            yield from _on_cpu(thread)
    for operator, launched in _launched(events):
        kernel: Kernel | None = shaped(operator, launched)
        if kernel is None and len(launched) == 1:
            kernel = elementwise(operator)
        seconds = sum(event["dur"] for event in launched) * 1e-6
        if kernel and seconds > 0.0:
            named = {Gemm: "forward", Attention: ""}.get(type(kernel), kernel.name)
            yield replace(kernel, name=named), seconds


def shaped_kernels(events: Sequence[Event]) -> Iterator[tuple[Gemm | Attention, list[Event]]]:
    """Each product and fused attention of known shape, with all that its operator launched."""
    for operator, launched in _launched(events):
        if kernel := shaped(operator, launched):
            yield kernel, launched


def _launched(events: Sequence[Event]) -> Iterator[tuple[Event, list[Event]]]:
    """Each operator that launches kernels, with its kernels."""
    ran: defaultdict[Any, list[Event]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "kernel":
            ran[correlation_of(event)].append(event)
    for call in launching(events):
        yield call.operator, [event for number in call.numbers for event in ran[number]]


def _on_cpu(events: list[Event]) -> Iterator[tuple[Gemm, float]]:
    free = float("-inf")
    for event in events:
        product = shaped(event) if event["ts"] >= free else None
        if isinstance(product, Gemm):
            free = event["ts"] + event.get("dur", 0.0)
            if event.get("dur", 0.0) > 0.0:
                yield replace(product, name="forward"), event["dur"] * 1e-6


def shaped(event: Event, launched: Iterable[Event] = ()) -> Gemm | Attention | None:
    """The product, convolution or fused attention that an operator computes, by its shapes and the
    names of the kernels `launched`. None for other operators, and where shapes were not
    recorded."""
    space, _, name = str(event["name"]).partition("::")
    given = zip(_listed(event, "Input Dims"), _listed(event, "Input type"), strict=False)
    tensors = tuple(_tensor(dims, str(kind)) for dims, kind in given if str(kind) in DTYPES)
    if space != "aten" or not tensors or any(prod(tensor.shape) == 0 for tensor in tensors):
        return None
    try:
        results = (_convolved(event, tensors),) if name == "convolution" else ()
        flags = _flags(event, name)
        kernel = kernel_of(
            Operator(name=f"aten.{name}", inputs=tensors, outputs=results, flags=flags)
        )
    except (IndexError, ValueError, TypeError):  # the shapes do not fit the operator
        return None
    if not isinstance(kernel, Gemm | Attention):
        return None
    in_tf32 = kernel.precision == "fp32" and any(_TF32.search(e["name"]) for e in launched)
    return replace(kernel, precision="tf32") if in_tf32 else kernel


def elementwise(event: Event) -> MemoryBound | None:
    """The bytes that an operator reads and writes, if its result has the shape to which its
    operands are broadcast. None for other operators, and where shapes were not recorded."""
    space, _, name = str(event["name"]).partition("::")
    plain = name.strip("_").removeprefix("native_").removesuffix("_backward")
    given = zip(
        _listed(event, "Input Dims"),
        _listed(event, "Input type"),
        _listed(event, "Input Strides") or repeat(None),
        strict=False,
    )
    tensors = [
        _tensor(dims, str(kind), strides)
        for dims, kind, strides in given
        if str(kind) in DTYPES and dims
    ]
    if space != "aten" or plain not in _ELEMENTWISE or not tensors:
        return None
    result = replace(max(tensors, key=lambda each: prod(each.shape)), elements=-1)
    read = sum(tensor.bytes for tensor in tensors)
    if plain in _WRITES:  # the operator writes its result into an operand
        return MemoryBound(name=name, bytes=read)
    return MemoryBound(name=name, bytes=read + result.bytes)


_WRITES = ("copy", "fill", "zero")
_ELEMENTWISE = {
    *_WRITES,
    *("add", "sub", "rsub", "mul", "div", "neg", "abs", "pow", "sqrt", "rsqrt", "exp", "log"),
    *("tanh", "sigmoid", "gelu", "silu", "relu", "threshold", "clamp", "clamp_min", "sin", "cos"),
    *("addcmul", "addcdiv", "lerp", "softmax", "log_softmax", "layer_norm", "clone"),
}


def _convolved(event: Event, tensors: Sequence[Tensor]) -> Tensor:
    """The result of a convolution. Raises `IndexError` where its strides were not recorded."""
    image, weight = tensors[0].shape, tensors[1].shape
    strides, paddings, dilations = (_numbers(event, place) for place in (3, 4, 5))
    if _word(event, 6) == "True":  # transposed: the result of the convolution in reverse
        return tensors[0]
    sizes = (
        (n + 2 * padding - dilation * (k - 1) - 1) // stride + 1
        for n, k, stride, padding, dilation in zip(
            image[2:], weight[2:], strides, paddings, dilations, strict=True
        )
    )
    return replace(tensors[0], shape=(image[0], weight[0], *sizes))


def _flags(event: Event, name: str) -> dict[str, Any]:
    """The arguments of an operator, beside its tensors, that its kernel depends on."""
    if name in _CAUSAL:
        return {"is_causal": _word(event, _CAUSAL[name]) == "True"}
    if name not in ("convolution", "convolution_backward"):
        return {}
    flags: dict[str, Any] = {}
    if name == "convolution_backward" and (mask := _word(event, 10)):
        flags["output_mask"] = tuple(part.strip() == "True" for part in mask[1:-1].split(","))
    strides = _listed(event, "Input Strides")[name == "convolution_backward" :]
    if strides and isinstance(strides[0], list):
        flags["channels_last"] = strides[0][1:2] == [1]
    return flags


_CAUSAL = {  # the place of `is_causal` (aten/src/ATen/native/native_functions.yaml)
    "_scaled_dot_product_flash_attention": 4,
    "_scaled_dot_product_efficient_attention": 6,
    "_scaled_dot_product_cudnn_attention": 6,
    "_scaled_dot_product_flash_attention_backward": 11,
    "_scaled_dot_product_efficient_attention_backward": 11,
    "_scaled_dot_product_cudnn_attention_backward": 14,
}


def _word(event: Event, place: int) -> str:
    """An argument that is not a tensor, as torch 2.1 and later record it; empty in older traces."""
    words = _listed(event, "Concrete Inputs")
    return str(words[place]) if place < len(words) else ""


def _numbers(event: Event, place: int) -> list[int]:
    numbers = json.loads(_word(event, place) or "[]")
    if not numbers:
        raise IndexError(place)
    return [int(number) for number in numbers]


def _tensor(dims: Any, kind: str, strides: Any = None) -> Tensor:
    sizes = dims if isinstance(dims, list) else []
    shape = tuple(size if type(size) is int and 0 <= size < 1 << 40 else 0 for size in sizes)
    told = isinstance(strides, list) and len(strides) == len(shape)
    elements = covered(shape, strides) if told else -1
    return Tensor(dtype=DTYPES[kind], width=WIDTHS[kind.lower()][1], shape=shape, elements=elements)


def _listed(event: Event, name: str) -> list[Any]:
    value = (event.get("args") or {}).get(name)
    return value if isinstance(value, list) else []
