"""How do the events of a profiler become a rank?

CUPTI gives a kernel and the call that launched it the same `correlation`. Where synchronisation was
recorded (category `cuda_sync`), `Stream Wait Event` names the stream that is waited for. Elsewhere
a kernel is assumed to wait for a `cudaStreamWaitEvent` before its launch: on every other stream,
for the last kernel that had ended when it began. In calls named ...Synchronize, and in copies that
return only at their end, a host waits for the kernels that end during the call. If the device's
queue of launches is full, a launch waits for the kernel that makes room. Threads of a host take
turns (autograd's does) and are read as a single thread.

On CPUs the operators are the work of the host. Only the collectives of gloo have threads of their
own. Each of them begins within an operator or before the next operator. If the host was idle when a
collective ended, it had waited for the collective.
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf
from operator import attrgetter, itemgetter
from pathlib import Path
from statistics import median
from typing import Any

from sim.config.errors import InputError
from sim.jobs.traces.described import CALLS, Event
from sim.jobs.traces.kineto import collective_of, gloo_of, lacking, members_of, trace_of
from sim.jobs.traces.kineto_operators import shaped_kernels
from sim.jobs.traces.profiled import CLOSE, DEVICE, Call, ProfiledSteps, RemovedSpans, Wait
from sim.jobs.traces.rank_trace import Collective, Group, HostSpan, Kernel, RankTrace
from sim.model.kernels import Attention, Gemm

_LIBRARY = re.compile("nccl|rccl|msccl", re.IGNORECASE)
_EXPERTS = re.compile(  # kernels of DeepEP that exchange tokens, or wait for all ranks before that
    r"\b(?:deep_ep|dpsk::ep)::((?:inter|intra)node\w*::\w*(?:dispatch|combine|notify|barrier)\w*)"
)

_QUEUE = 1000  # launches that CUDA queues before it waits; hosts were seen to wait at 1022 to 1024
_MANY = 10  # the median of fewer delays is not taken as the device's usual delay
_LONGEST_DELAY = 30e-6  # s; launches on an MI300X take up to 25 us


def host_items(steps: ProfiledSteps) -> Iterator[HostSpan]:
    """The spans of the host from one launch or wait to the next, without removed time; none if a
    trace has no launches."""
    if not steps.on_device:
        yield from _of_operators(steps)
    if not any(steps.launch):
        return
    at, done = steps.begin, sorted((end, n) for n, end in enumerate(steps.ends))
    for call in steps.calls:
        room = _made_room(call, done)
        if room is not None:
            begin = max(call.begin, at)
            yield HostSpan(seconds=steps.removed.seconds_left(at, begin), awaited=(room,))
            at = max(steps.ends[room], begin)
        if not call.kernels:
            ended = _ended_within(steps, call)
            point = max(call.begin, at)
            yield HostSpan(seconds=steps.removed.seconds_left(at, point), awaited=ended)
            at = max(max((steps.ends[n] for n in ended), default=point), point)
            continue
        point = max(steps.points[call.kernels[0]], at)
        yield HostSpan(seconds=steps.removed.seconds_left(at, point), launched=call.kernels)
        at = point
        last = call.kernels[-1]
        if "emcpy" in steps.found[last]["name"] and call.end >= steps.ends[last]:
            yield HostSpan(seconds=0.0, awaited=(last,))
            at = max(at, steps.ends[last])
    yield HostSpan(seconds=steps.removed.seconds_left(at, steps.end))


def _made_room(call: Call, done: Sequence[tuple[float, int]]) -> int | None:
    """The kernel for whose end a launch waited because the queue of launches was full; None if the
    queue had room. `done` has the ends of all kernels, and their numbers."""
    if not call.kernels or call.kernels[0] - bisect_right(done, (call.begin, inf)) < _QUEUE:
        return None
    end, number = done[bisect_right(done, (call.end, inf)) - 1]
    return number if end > call.begin else None


def _of_operators(steps: ProfiledSteps) -> Iterator[HostSpan]:
    """Yield a CPU's operators as the host's own time. If the host is idle when a collective of gloo
    ends, it has waited for the collective."""
    at, flying = steps.begin, list(steps.begun)
    started: defaultdict[int, list[int]] = defaultdict(list)
    for collective, operator in steps.begun.items():
        started[operator].append(collective)
    for n, event in enumerate(steps.found):
        if n in steps.begun:
            continue
        at = yield from _waited(steps, at, float(event["ts"]), flying)
        seconds = steps.removed.seconds_left(at, event["ts"])
        yield HostSpan(seconds=seconds, launched=(n, *started[n]))
        yield HostSpan(seconds=0.0, awaited=(n,))
        at = steps.ends[n]
    at = yield from _waited(steps, at, steps.end, flying)
    yield HostSpan(seconds=steps.removed.seconds_left(at, steps.end))


def _waited(
    steps: ProfiledSteps, at: float, until: float, flying: list[int]
) -> Generator[HostSpan, None, float]:
    """Yield a wait for the `flying` collectives that end between two moments; return the end of the
    wait."""
    ended = [n for n in flying if steps.ends[n] <= until]
    flying[:] = [n for n in flying if n not in ended]
    if awaited := tuple(n for n in ended if steps.ends[n] > at):
        yield HostSpan(seconds=0.0, awaited=awaited)
        at = max(float(steps.ends[n]) for n in awaited)
    return at


def _ended_within(steps: ProfiledSteps, call: Call) -> tuple[int, ...]:
    """The last kernel on each stream that ended during a call; a call that waits for the whole
    device also waits for kernels that ended before."""
    latest: dict[str, int] = {}
    for n in range(len(steps.found)):
        if steps.moments[n] > call.begin:
            continue
        if (call.everything or call.begin < steps.ends[n]) and steps.ends[n] <= call.end + CLOSE:
            latest[steps.stream(steps.found[n])] = n
    return tuple(latest.values())


def kernels(steps: ProfiledSteps, works: Mapping[int, Gemm | Attention]) -> list[Kernel]:
    """The kernels in the order of their launches; kernels of removed operators take no time. A
    kernel waits for its launch, its stream and other streams; the last of these waits to end
    counts. Its `usual` lag is the device's median lag of kernels of its category after such a wait.
    `works` has the operators' products and attention, by the `id` of the events that they
    launched."""
    found = list(_kernels(steps, works))
    lags: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for behind, kernel in found:
        lags[behind].append(kernel.lag)
    usual = {
        behind: delay
        for behind, each in lags.items()
        if len(each) >= _MANY and (delay := median(each)) <= _LONGEST_DELAY
    }
    return [replace(k, usual=min(k.lag, usual.get(behind, 0.0))) for behind, k in found]


def _kernels(
    steps: ProfiledSteps, works: Mapping[int, Gemm | Attention]
) -> Iterator[tuple[tuple[str, str], Kernel]]:
    """Each kernel, with its category and its last wait: for its launch, its own stream, or other
    streams."""
    seen: Counter[tuple[str, str]] = Counter()
    before: defaultdict[str, list[int]] = defaultdict(list)  # earlier kernels, by stream
    for n, event in enumerate(steps.found):
        stream = steps.stream(event)
        after = tuple(
            m for m in _awaited(steps, n, stream, before) if steps.ends[m] <= event["ts"] + CLOSE
        )
        known = steps.launch[n] is not None or not steps.on_device
        ready = {"launch": steps.points[n] if known else steps.begin}
        if before[stream]:
            ready["stream"] = steps.ends[before[stream][-1]]
        if after:
            ready["wait"] = max(steps.ends[m] for m in after)
        before[stream].append(n)
        behind = max(ready, key=ready.__getitem__)
        yield (
            (str(event.get("cat")), behind),
            Kernel(
                name=event["name"],
                stream=stream,
                seconds=_seconds(steps, n),
                lag=max(event["ts"] - ready[behind], 0.0) * 1e-6,
                after=after,
                collective=None if _uncalled(steps, n) else _collective(steps, event, seen),
                work=works.get(id(event)),
            ),
        )


def flights(
    steps: ProfiledSteps, launched: Sequence[Kernel]
) -> Iterator[tuple[Group, tuple[float, float]]]:
    """The begin and the end of each collective, in seconds after the first step began."""
    for kernel, event, end in zip(launched, steps.found, steps.ends, strict=True):
        if kernel.collective is not None:
            begin = (event["ts"] - steps.begin) * 1e-6
            yield kernel.collective.key, (begin, (end - steps.begin) * 1e-6)


def _seconds(steps: ProfiledSteps, n: int) -> float:
    """How many seconds a kernel ran; 0 where its operator was removed."""
    if not steps.on_device and n not in steps.begun:
        return steps.removed.seconds_left(steps.found[n]["ts"], steps.ends[n])
    since = max(steps.found[n]["ts"], steps.begin)
    return 0.0 if _removed(steps, n) else float(steps.ends[n] - since) * 1e-6


def _uncalled(steps: ProfiledSteps, n: int) -> bool:
    """Whether no step calls kernel n: its operator was removed, or it precedes the steps."""
    return n < steps.left or _removed(steps, n)


def _removed(steps: ProfiledSteps, n: int) -> bool:
    if n in steps.begun:  # removed with the call of torch.distributed before it
        before = bisect_right(steps.asked, steps.found[n]["ts"])
        return before > 0 and steps.asked[before - 1] in steps.removed
    launch = steps.launch[n]
    return launch is not None and launch["ts"] in steps.removed


def _awaited(
    steps: ProfiledSteps, n: int, stream: str, before: Mapping[str, Sequence[int]]
) -> Iterator[int]:
    """The kernels on other streams that this kernel was made to wait for, one on each stream. If
    the moment is known at which the event was recorded, this is the last kernel launched before it.
    Otherwise the last kernel that was launched before the wait, and had ended as this one began."""
    launch = steps.launch[n]
    if launch is None:
        return
    earlier = before.get(stream)
    previous = steps.launch[earlier[-1]] if earlier else None
    since = previous["ts"] if previous else steps.begin
    began = steps.found[n]["ts"] + CLOSE
    for wait in _between(steps.waits, since, launch["ts"]):
        if wait.stream not in (None, stream):
            continue
        for other, kernels in before.items():
            place = bisect_right(
                kernels, min(wait.until, wait.moment), key=steps.moments.__getitem__
            )
            if wait.until == inf:
                place = bisect_right(kernels, began, hi=place, key=steps.ends.__getitem__)
            if place and other != stream and wait.on in (None, other):
                yield kernels[place - 1]


def _between(waits: Sequence[Wait], since: float, until: float) -> Sequence[Wait]:
    """The waits from one moment to another."""
    begin = bisect_left(waits, since, key=attrgetter("moment"))
    return waits[begin : bisect_right(waits, until, key=attrgetter("moment"))]


def _collective(
    steps: ProfiledSteps, event: Event, seen: Counter[tuple[str, str]]
) -> Collective | None:
    """A collective, numbered among the `seen` collectives of its group and kind."""
    args = event.get("args") or {}
    if (sent := gloo_of(event, steps.world)) is not None:
        key: tuple[str, str] = "gloo", sent["operation"]
        seen[key] += 1
        return Collective(
            key=(*key, seen[key]), kind=key[1], bytes=sent["bytes"], ranks=steps.world,
            lacks=lacking(args),
        )  # fmt: skip
    exchange = _EXPERTS.search(event["name"])
    if not _LIBRARY.search(event["name"]) and not exchange:
        return None
    if exchange:
        key = "experts", exchange[1]
        described: dict[str, Any] = {
            "operation": "all_to_all", "bytes": 0.0, "ranks": steps.world,
            "nodes": -(-steps.world // (steps.per_node or steps.world)),
        }  # fmt: skip
    elif "Collective name" not in args:
        named = str(event["name"]).split("(")[0]
        key = "all", named
        described = {"operation": named, "bytes": 0.0, "ranks": 1, "nodes": 1}
    else:
        described = collective_of(args, steps.per_node)
        key = (
            f"{described['name']} {args.get('Process Group Ranks', '')}".strip(),
            described["operation"],
        )
    seen[key] += 1
    return Collective(
        key=(*key, seen[key]), kind=described["operation"], bytes=described["bytes"],
        ranks=described["ranks"], nodes=described["nodes"],
        members=members_of(args, described["ranks"]), lacks=lacking(args),
    )  # fmt: skip


def read(path: Path, removed: str = "") -> RankTrace:
    """The steps of one rank. Operators whose name contains `removed`, their kernels and their host
    time are left out. Raises `InputError` for a file that holds no step."""
    document = trace_of(path)
    events = [e for e in document["traceEvents"] if e.get("ph") == "X" and e.get("dur", -1) >= 0]
    cuts = _cuts(events, path)
    begin, *_, end = cuts
    events = [e for e in events if begin <= e["ts"] < end or e.get("cat") in DEVICE]
    operators = [e for e in events if e.get("cat") == "cpu_op"] if removed else []
    matched = [e for e in operators if removed in e["name"]]
    gone = RemovedSpans((e["ts"], e["ts"] + e["dur"]) for e in matched)
    if removed and not gone:
        names = Counter(e["name"] for e in operators).most_common(3)
        some = ", ".join(name for name, _ in names) or "none"
        raise InputError("--remove", f"{path.name} has no operator {removed!r}", f"e.g. {some}")
    job = document.get("distributedInfo") or {}
    found = ProfiledSteps(document, events, begin, end, gone)
    works = {id(e): work for work, ran in shaped_kernels(events) for e in ran}
    launched = tuple(kernels(found, works))
    ends, lead = _ends(found, cuts)
    return RankTrace(
        rank=int(job.get("rank", 0)),
        world=found.world,
        kernels=launched,
        flights=dict(flights(found, launched)),
        host=tuple(host_items(found)),
        steps=len(cuts) - 1,
        ends=ends,
        lead=lead,
        device=_device(document),
    )


def _device(document: Mapping[str, Any]) -> tuple[str, float]:
    """The driver's name and the memory of the first device."""
    first: Any = next(iter(document.get("deviceProperties") or ()), None)
    if not isinstance(first, dict):
        return "", 0.0
    memory = first.get("totalGlobalMem")
    return str(first.get("name", "")), float(memory) if isinstance(memory, int) else 0.0


def _ends(steps: ProfiledSteps, cuts: Sequence[float]) -> tuple[tuple[float, float], int]:
    """When the device ended the first and the last step (s), and `RankTrace.lead`. The lead is also
    0 if the first step ended last, or if the trace has no device."""
    places = [*(bisect_left(steps.moments, cut) for cut in cuts[:-1]), len(steps.found)]
    lead = places[len(cuts) > 2] if all(here < there for here, there in pairwise(places)) else 0
    first, last = max(steps.ends[:lead], default=inf), max(steps.ends, default=steps.end)
    if not steps.on_device or not first < last:
        first, last, lead = steps.end, max(last, steps.end), 0
    return ((first - steps.begin) * 1e-6, (last - steps.begin) * 1e-6), lead


def _cuts(events: Sequence[Event], path: Path) -> list[float]:
    """When the first marked step began, and when each step ended (us). Steps are marked by the
    profiler's schedule, or end with an optimizer's step; otherwise the trace is a single step."""
    on_host = [e for e in events if e.get("cat") in ("user_annotation", "cpu_op")]
    marks = [e for e in on_host if str(e["name"]).startswith("ProfilerStep#")]
    if marks:
        begins: dict[str, float] = {}  # threads may each have a mark of a step
        for mark in sorted(marks, key=itemgetter("ts")):
            begins.setdefault(mark["name"], mark["ts"])
        end = max(e["ts"] + e["dur"] for e in marks)
        if not end > min(begins.values()):
            fault = f"{marks[0]['name']} lasts no time"
            raise InputError(str(path), fault, "profile a step of training")
        return [*begins.values(), end]
    times = [
        (e["ts"], e["ts"] + e["dur"]) for e in events if e.get("cat") in (*DEVICE, *CALLS, "cpu_op")
    ]
    if not times:
        raise InputError(
            str(path), "holds neither kernels nor operators", "profile a step of training"
        )
    begin = min(begin for begin, _ in times)
    updates = _updates(on_host)
    if updates and not any(e.get("cat") in DEVICE for e in events):
        return updates
    return [begin, *updates] if updates else [begin, max(end for _, end in times) + CLOSE]


def _updates(on_host: Iterable[Event]) -> list[float]:
    """The ends of the steps of the optimizer that steps last, among those that step repeatedly."""
    ends: defaultdict[str, list[float]] = defaultdict(list)
    for event in on_host:
        if event["name"].startswith("Optimizer.step#"):
            ends[event["name"]].append(event["ts"] + event["dur"])
    repeated = [sorted(each) for each in ends.values() if len(each) > 1]
    return max(repeated, key=lambda each: each[-1], default=[])
