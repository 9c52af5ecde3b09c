"""What the host of a profiled rank did: launches, waits, and the time between them."""

from collections.abc import Iterator

from sim.traces.activity import HostItem
from sim.traces.profiled import CLOSE, Call, ProfiledSteps


def host_items(steps: ProfiledSteps) -> Iterator[HostItem]:
    """From one launch or wait to the next, without what was removed; nothing where a trace has
    no launches."""
    if not steps.on_device:
        yield from _of_operators(steps)
    if not any(steps.launch):
        return
    at = steps.begin
    for call in steps.calls:
        if not call.kernels:
            ended = _ended_within(steps, call)
            point = max(call.begin, at)
            yield HostItem(seconds=steps.removed.seconds_left(at, point), awaited=ended)
            at = max(max((steps.ends[n] for n in ended), default=point), point)
            continue
        point = max(steps.points[call.kernels[0]], at)
        yield HostItem(seconds=steps.removed.seconds_left(at, point), launched=call.kernels)
        at = point
        last = call.kernels[-1]
        if "emcpy" in steps.found[last]["name"] and call.end >= steps.ends[last]:
            yield HostItem(seconds=0.0, awaited=(last,))
            at = max(at, steps.ends[last])
    yield HostItem(seconds=steps.removed.seconds_left(at, steps.end))


def _of_operators(steps: ProfiledSteps) -> Iterator[HostItem]:
    """Operators of a CPU are the host's own time."""
    at = steps.begin
    for n, event in enumerate(steps.found):
        yield HostItem(seconds=steps.removed.seconds_left(at, event["ts"]), launched=(n,))
        yield HostItem(seconds=0.0, awaited=(n,))
        at = steps.ends[n]
    yield HostItem(seconds=steps.removed.seconds_left(at, steps.end))


def _ended_within(steps: ProfiledSteps, call: Call) -> tuple[int, ...]:
    """The kernels that a call waits for, the last on each stream: those that ended meanwhile,
    or before it where it waits for the whole device."""
    latest: dict[str, int] = {}
    for n in range(len(steps.found)):
        launch = steps.launch[n]
        if launch is None or launch["ts"] > call.begin:
            continue
        if (call.everything or call.begin < steps.ends[n]) and steps.ends[n] <= call.end + CLOSE:
            latest[steps.stream(steps.found[n])] = n
    return tuple(latest.values())
