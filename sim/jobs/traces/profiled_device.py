"""What the device of a profiled rank did: each kernel, and what it was made to wait for."""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

from sim.jobs.traces.activity import Collective, Group, Kernel
from sim.jobs.traces.kineto import Event, collective_of, gloo_of, lacking, members_of
from sim.jobs.traces.profiled import CLOSE, ProfiledSteps
from sim.jobs.traces.waits import Wait


def kernels(steps: ProfiledSteps) -> Iterator[Kernel]:
    """Its kernels in the order of their launches; those of what was removed take no time."""
    seen: Counter[tuple[str, str]] = Counter()
    before: defaultdict[str, list[int]] = defaultdict(list)  # those on each stream
    for n, event in enumerate(steps.found):
        stream = steps.stream(event)
        after = tuple(
            m for m in _awaited(steps, n, stream, before) if steps.ends[m] <= event["ts"] + CLOSE
        )
        known = steps.launch[n] is not None or not steps.on_device
        ready = [steps.points[n] if known else steps.begin, *(steps.ends[m] for m in after)]
        if before[stream]:
            ready.append(steps.ends[before[stream][-1]])
        before[stream].append(n)
        yield Kernel(
            name=event["name"],
            stream=stream,
            seconds=_seconds(steps, n),
            lag=max(event["ts"] - max(ready), 0.0) * 1e-6,
            after=after,
            collective=None if _removed(steps, n) else _collective(steps, event, seen),
        )


def flights(
    steps: ProfiledSteps, own: Sequence[Kernel]
) -> Iterator[tuple[Group, tuple[float, float]]]:
    """From and to when its collectives lasted, in seconds after its first step began."""
    for kernel, event, end in zip(own, steps.found, steps.ends, strict=True):
        if kernel.collective is not None:
            begin = (event["ts"] - steps.begin) * 1e-6
            yield kernel.collective.key, (begin, (end - steps.begin) * 1e-6)


def _seconds(steps: ProfiledSteps, n: int) -> float:
    """How long a kernel ran, nothing where its operator was removed."""
    if not steps.on_device and n not in steps.begun:
        return steps.removed.seconds_left(steps.found[n]["ts"], steps.ends[n])
    return 0.0 if _removed(steps, n) else float(steps.found[n]["dur"]) * 1e-6


def _removed(steps: ProfiledSteps, n: int) -> bool:
    if n in steps.begun:  # by the call of torch.distributed before it
        before = bisect_right(steps.asked, steps.found[n]["ts"])
        return before > 0 and steps.asked[before - 1] in steps.removed
    launch = steps.launch[n]
    return launch is not None and launch["ts"] in steps.removed


def _awaited(
    steps: ProfiledSteps, n: int, stream: str, before: Mapping[str, Sequence[int]]
) -> Iterator[int]:
    """The kernels on other streams that this one was made to wait for: the last one launched on
    each before what is waited for was recorded, if that is known."""
    launch = steps.launch[n]
    if launch is None:
        return
    own = before.get(stream)
    previous = steps.launch[own[-1]] if own else None
    since = previous["ts"] if previous else steps.begin
    for wait in _between(steps.waits, since, launch["ts"]):
        if wait.stream not in (None, stream):
            continue
        for other, kernels in before.items():
            place = bisect_right(kernels, wait.until, key=steps.asked_for)
            if place and other != stream and wait.on in (None, other):
                yield kernels[place - 1]


def _between(waits: Sequence[Wait], since: float, until: float) -> Sequence[Wait]:
    """Those from one moment to another."""
    begin = bisect_left(waits, since, key=attrgetter("moment"))
    return waits[begin : bisect_right(waits, until, key=attrgetter("moment"))]


def _collective(
    steps: ProfiledSteps, event: Event, seen: Counter[tuple[str, str]]
) -> Collective | None:
    """What a collective does, numbered among those `seen` of its group and kind."""
    args = event.get("args") or {}
    if (sent := gloo_of(event, steps.world)) is not None:
        key: tuple[str, str] = "gloo", sent["operation"]
        seen[key] += 1
        return Collective(
            key=(*key, seen[key]), kind=key[1], bytes=sent["bytes"], ranks=steps.world,
            lacks=lacking(args),
        )  # fmt: skip
    if "nccl" not in event["name"].lower() and "rccl" not in event["name"].lower():
        return None
    if "Collective name" not in args:
        named = str(event["name"]).split("(")[0]
        key = "all", named
        what: dict[str, Any] = {"operation": named, "bytes": 0.0, "ranks": 1, "nodes": 1}
    else:
        what = collective_of(args, steps.per_node)
        key = f"{what['name']} {args.get('Process Group Ranks', '')}".strip(), what["operation"]
    seen[key] += 1
    return Collective(
        key=(*key, seen[key]), kind=what["operation"], bytes=what["bytes"],
        ranks=what["ranks"], nodes=what["nodes"], members=members_of(args, what["ranks"]),
        lacks=lacking(args),
    )  # fmt: skip
