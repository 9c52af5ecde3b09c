"""From what calls take the host, or took it in traces, to what their operators take."""

from collections import defaultdict
from collections.abc import Iterable

from sim.analysis.calibration.timing.clock import summary
from sim.analysis.calibration.timing.host_times import HostTime
from sim.hardware.kernels.dispatch import OperatorTime, Phase
from sim.jobs.traces.kineto_operators import HostCall


def host_table(times: Iterable[HostTime]) -> tuple[OperatorTime, ...]:
    """The host's seconds of every operator that the calls dispatch, by phase.

    A call is as long as its operators together. In the order of the calls, what those take that an
    earlier call has shown is taken off, and the rest divided evenly among those that are new, so
    that whatever is built of the same calls takes as long as they do. Where less than nothing is
    left they stay unknown. Each tensor of a list is paid for by the operators on lists.
    """
    known: dict[tuple[str, str], OperatorTime] = {}
    for time in times:
        shown = {name: known.get((name, time.phase)) for name in time.operators}
        new = {name: time.operators[name] for name, own in shown.items() if own is None}
        before = [(own, time.operators[name]) for name, own in shown.items() if own is not None]
        left = time.seconds - sum(own.seconds * count for own, count in before)
        each = time.each - sum(own.each * count for own, count in before)
        if not new or left < 0.0:
            continue
        lists = sum(count for name, count in new.items() if _on_lists(name))
        for name in new:
            known[name, time.phase] = OperatorTime(
                operator=name,
                phase=time.phase,
                seconds=left / sum(new.values()),
                each=max(each, 0.0) / lists if _on_lists(name) else 0.0,
                spread=time.spread,
                calls=time.calls,
            )
    return tuple(known.values())


def traced(calls: Iterable[HostCall]) -> tuple[OperatorTime, ...]:
    """The median of every operator and phase in traces of PyTorch's profiler, which takes time of
    its own for each."""
    seconds: defaultdict[tuple[str, Phase], list[float]] = defaultdict(list)
    for call in calls:
        seconds[call.operator, call.phase].append(call.seconds)
    return tuple(
        OperatorTime(operator=name, phase=phase, seconds=middle, spread=spread, calls=len(own))
        for (name, phase), own in seconds.items()
        for middle, spread in [summary(own) if len(own) > 1 else (own[0], 0.0)]
    )


def _on_lists(name: str) -> bool:
    return name.startswith(("_foreach", "_fused", "_amp_foreach"))
