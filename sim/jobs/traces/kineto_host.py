"""How long did operators occupy the host in a GPU's trace of PyTorch's profiler?

An operator is counted as in a recording: the outermost operator around a launch that is kernels of
its own (`sim.jobs.recorded.kernels.has_kernel`), else the innermost. Of copies and fills it is the
operator that began them. Its seconds reach from the end of the operator before it to its own end,
without calls in which the host waits. Thus views, Python and the engine count with the operator
behind them, as in the measured table. The first operator behind an optimizer's step counts from its
own beginning. Threads take turns and are read as a single thread. Operators of CPUs are their own
kernels, so a trace without launches has no such operators.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sim.hardware.kernels.dispatch import Phase, fused_as_one
from sim.jobs.recorded.kernels import has_kernel, of_own_use
from sim.jobs.recorded.trace_nodes import ENGINE
from sim.jobs.traces.kineto import CALLS, Event, correlation_of

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
    threads: defaultdict[object, list[Event]] = defaultdict(list)
    for event in events:
        launch = event.get("cat") in CALLS and correlation_of(event) in kernels
        if launch or event.get("cat") == "cpu_op" or event["name"].startswith("Optimizer.step"):
            threads[event.get("pid"), event.get("tid")].append(event)
    for thread in threads.values():
        yield from _of_thread(thread)


def _of_thread(events: list[Event]) -> Iterator[_Launching]:
    opened: list[Event] = []
    known: set[int] = set()
    for event in sorted(events, key=lambda event: (event["ts"], -event.get("dur", 0.0))):
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
