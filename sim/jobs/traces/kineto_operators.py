"""How long did operators occupy the host, and which matrix products were timed, in a trace of
PyTorch's profiler?

Host: an operator is counted as in a recording. It is the outermost operator around a launch that is
kernels of its own (`sim.jobs.recorded.kernels.has_kernel`), else the innermost. Of copies and fills
it is the operator that began them. Its seconds reach from the end of the operator before it to its
own end, without calls in which the host waits. Thus views, Python and the engine count with the
operator behind them, as in the measured table. The first operator behind an optimizer's step counts
from its own beginning. Threads take turns and are read as a single thread. A trace without
launches, as of a CPU, has no such operators.

Products (`record_shapes=True`): the seconds of a product are the seconds of the kernels that it or
an inner operator has launched, which have the number (`External id`) of that operator. On CPUs they
are the operator's own.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, NamedTuple

from sim.hardware.kernels.dispatch import Phase, fused_as_one
from sim.jobs.recorded.kernels import has_kernel, kernel_of, of_own_use
from sim.jobs.recorded.recording import Operator, Tensor
from sim.jobs.recorded.trace_nodes import DTYPES, ENGINE
from sim.jobs.traces.event import CALLS, Event, correlation_of
from sim.model.kernels import Gemm

_PHASES: dict[str, Phase] = {ENGINE: "backward", "Optimizer.step": "optimizer"}


class HostCall(NamedTuple):
    """A call of an operator in a phase, and the host's seconds for it."""

    operator: str
    phase: Phase
    seconds: float


@dataclass(frozen=True, slots=True)
class _Launching:
    """An operator that launches; times in us."""

    name: str
    phase: Phase
    begin: float
    end: float


def host_calls(events: Sequence[Event]) -> Iterator[HostCall]:
    """The calls of a trace's events (`sim.jobs.traces.kineto.events_of`), in the host's order."""
    waits = [e for e in events if e.get("cat") in CALLS and "Synchronize" in e["name"]]
    spans = sorted((e["ts"], e["ts"] + e.get("dur", 0.0)) for e in waits)
    calls = sorted(_launching(events), key=lambda call: (call.begin, call.end))
    at = calls[0].begin if calls else 0.0  # what comes first counts alone, whatever its phase
    before, place = "optimizer", 0
    for call in calls:
        alone = call.phase == "forward" and before == "optimizer"
        begin, waited = call.begin if alone else at, 0.0
        while place < len(spans) and spans[place][0] < call.end:
            waited += max(spans[place][1] - max(spans[place][0], begin), 0.0)
            place += 1
        if call.end > begin + waited:
            yield HostCall(call.name, call.phase, (call.end - begin - waited) * 1e-6)
        at, before = max(at, call.end), call.phase


def _launching(events: Sequence[Event]) -> Iterator[_Launching]:
    """Every operator that launches, once."""
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


def _launching_on(events: list[Event]) -> Iterator[_Launching]:
    opened: list[Event] = []
    known: set[int] = set()
    for event in events:
        while opened and _end(opened[-1]) <= event["ts"]:
            opened.pop()
        if event.get("cat") not in CALLS:
            opened.append(event)
            continue
        operator = _operator([outer for outer in opened if outer["name"].startswith("aten::")])
        if operator is not None and id(operator) not in known:
            known.add(id(operator))
            name = fused_as_one(_name(operator))
            yield _Launching(name, _phase(opened), operator["ts"], _end(operator))


def _operator(around: list[Event]) -> Event | None:
    """Of the operators around a launch, the operator that a recording would have."""
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


def products(events: Sequence[Event]) -> Iterator[tuple[Gemm, float]]:
    """Each product with its seconds, in the order of a trace's events
    (`sim.jobs.traces.kineto.events_of`)."""
    launched: defaultdict[Any, float] = defaultdict(float)
    for event in events:
        if event.get("cat") == "kernel":
            launched[_args(event).get("External id")] += event["dur"] * 1e-6
    for thread in _threads(event for event in events if event.get("cat") == "cpu_op"):
        yield from _products_of(thread, launched)


def _products_of(
    events: list[Event], launched: Mapping[Any, float]
) -> Iterator[tuple[Gemm, float]]:
    begins, free = [event["ts"] for event in events], float("-inf")
    for place, event in enumerate(events):
        product = _product_of(event) if event["ts"] >= free else None
        if product is None:
            continue
        free = event["ts"] + event.get("dur", 0.0)
        inside = events[place : bisect_left(begins, free, lo=place + 1)]
        numbers = {_args(inner).get("External id") for inner in inside}
        on_gpu = sum(launched.get(number, 0.0) for number in numbers)
        seconds = on_gpu if launched else event.get("dur", 0.0) * 1e-6
        if seconds > 0.0:
            yield replace(product, name="forward"), seconds


def _product_of(event: Event) -> Gemm | None:
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
