"""What the host of a profiled rank did: launches, waits, and the time between them."""

from collections import defaultdict
from collections.abc import Generator, Iterator

from sim.jobs.traces.activity import HostItem
from sim.jobs.traces.profiled import CLOSE, Call, ProfiledSteps


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
    """Operators of a CPU are the host's own time; where it does nothing as a collective of gloo
    ends, it has waited for that."""
    at, flying = steps.begin, list(steps.begun)
    started: defaultdict[int, list[int]] = defaultdict(list)
    for collective, operator in steps.begun.items():
        started[operator].append(collective)
    for n, event in enumerate(steps.found):
        if n in steps.begun:
            continue
        at = yield from _waited(steps, at, float(event["ts"]), flying)
        seconds = steps.removed.seconds_left(at, event["ts"])
        yield HostItem(seconds=seconds, launched=(n, *started[n]))
        yield HostItem(seconds=0.0, awaited=(n,))
        at = steps.ends[n]
    at = yield from _waited(steps, at, steps.end, flying)
    yield HostItem(seconds=steps.removed.seconds_left(at, steps.end))


def _waited(
    steps: ProfiledSteps, at: float, until: float, flying: list[int]
) -> Generator[HostItem, None, float]:
    """A wait for what is `flying` and ends between two moments, and when that is over."""
    ended = [n for n in flying if steps.ends[n] <= until]
    flying[:] = [n for n in flying if n not in ended]
    if awaited := tuple(n for n in ended if steps.ends[n] > at):
        yield HostItem(seconds=0.0, awaited=awaited)
        at = max(float(steps.ends[n]) for n in awaited)
    return at


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
