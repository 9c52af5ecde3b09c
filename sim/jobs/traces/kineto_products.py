"""Which matrix products has a trace of PyTorch's profiler timed (`record_shapes=True`)?

A product has the shapes and types of its arguments. Its seconds are the seconds of the kernels that
it or an inner operator has launched, which have the number (`External id`) of that operator. On
CPUs they are the operator's own.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from sim.jobs.recorded.kernels import kernel_of
from sim.jobs.recorded.recording import Operator, Tensor
from sim.jobs.recorded.trace_nodes import DTYPES
from sim.jobs.traces.kineto import Event
from sim.model.kernels import Gemm


def products(events: Sequence[Event]) -> Iterator[tuple[Gemm, float]]:
    """Each product with its seconds, in the order of a trace's events
    (`sim.jobs.traces.kineto.events_of`)."""
    launched: defaultdict[Any, float] = defaultdict(float)
    for event in events:
        if event.get("cat") == "kernel":
            launched[_args(event).get("External id")] += event["dur"] * 1e-6
    threads: defaultdict[Any, list[Event]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "cpu_op":
            threads[event.get("pid"), event.get("tid")].append(event)
    for thread in threads.values():
        thread.sort(key=lambda event: (event["ts"], -event.get("dur", 0.0)))
        yield from _of_thread(thread, launched)


def _of_thread(events: list[Event], launched: Mapping[Any, float]) -> Iterator[tuple[Gemm, float]]:
    begins, free = [event["ts"] for event in events], float("-inf")
    for place, event in enumerate(events):
        product = _product(event) if event["ts"] >= free else None
        if product is None:
            continue
        free = event["ts"] + event.get("dur", 0.0)
        inside = events[place : bisect_left(begins, free, lo=place + 1)]
        numbers = {_args(inner).get("External id") for inner in inside}
        on_gpu = sum(launched.get(number, 0.0) for number in numbers)
        seconds = on_gpu if launched else event.get("dur", 0.0) * 1e-6
        if seconds > 0.0:
            yield replace(product, name="forward"), seconds


def _product(event: Event) -> Gemm | None:
    """The product that an operator is; None for other operators, and without recorded shapes."""
    space, _, name = str(event["name"]).partition("::")
    given = zip(_listed(event, "Input Dims"), _listed(event, "Input type"), strict=False)
    tensors = tuple(_tensor(dims, str(kind)) for dims, kind in given if str(kind) in DTYPES)
    if space != "aten" or not tensors or any(prod(tensor.shape) == 0 for tensor in tensors):
        return None
    try:
        kernel = kernel_of(Operator(name=f"aten.{name}", inputs=tensors))
    except (IndexError, ValueError):  # no shapes of a product
        return None
    return kernel if isinstance(kernel, Gemm) else None


def _tensor(dims: Any, kind: str) -> Tensor:
    sizes = dims if isinstance(dims, list) else []
    shape = tuple(size if type(size) is int and 0 <= size < 1 << 40 else 0 for size in sizes)
    return Tensor(dtype=DTYPES[kind], width=0.0, shape=shape)


def _listed(event: Event, name: str) -> list[Any]:
    value = _args(event).get(name)
    return value if isinstance(value, list) else []


def _args(event: Event) -> Mapping[str, Any]:
    return event.get("args") or {}
