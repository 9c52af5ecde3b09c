"""How do the ranks of a trace become a program? The host is a stream beside the device's.

A kernel waits for its launch. The host waits for kernels if it needs their results or their end.
Operations of one stream run in order. All ranks of the trace that take part in a collective meet in
it. If no trace of its peers is given, a rank waits for nobody: its collectives last as long as they
did.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from sim.engine.record import Record
from sim.jobs.recorded.program import stage_of, step_of
from sim.jobs.traces.rank_trace import Group, HostSpan, Kernel, RankTrace
from sim.program.causes import COMMUNICATION, COMPUTE, HOST, WAITING, Cause
from sim.program.operations import (
    Communicate,
    Compute,
    Operation,
    PassOps,
    PlacedCollective,
    Segment,
    Work,
)
from sim.program.program import Program

HOST_STREAM = "host"

Calls = Mapping[Group, PlacedCollective]


def program(ranks: Sequence[RankTrace]) -> Program:
    """The steps of ranks as a program in which each rank is a stage."""
    calls = _calls(ranks)
    written = [tuple(_operations(rank, calls)) for rank in ranks]
    stages = [stage_of(PassOps(each, (None,) * len(each))) for each in written]
    return step_of({"pp": len(ranks)}, stages)


def kernel_ends(record: Record, number: int, rank: RankTrace) -> list[float]:
    """When each kernel of a rank ended in the record of a program of several ranks."""
    streams = record.program().roles[number].streams
    ends = {
        step.name: end
        for track in record.tracks
        if track.role == number
        for step, end in zip(streams[track.stream], track.end.tolist(), strict=True)
    }
    return [ends[_end(n, kernel)] for n, kernel in enumerate(rank.kernels)]


def _calls(ranks: Sequence[RankTrace]) -> Calls:
    """The collectives of all ranks. Without a route, a collective takes its shortest duration among
    the ranks, since the last rank to arrive did not wait."""
    met: defaultdict[Group, list[tuple[int, Kernel]]] = defaultdict(list)
    for stage, rank in enumerate(ranks):
        for kernel in rank.kernels:
            if kernel.collective is not None:
                met[kernel.collective.key].append((stage, kernel))
    return {
        key: _call(tuple(stage for stage, _ in each), [kernel for _, kernel in each])
        for key, each in met.items()
    }


def _call(stages: tuple[int, ...], kernels: Sequence[Kernel]) -> PlacedCollective:
    call = kernels[-1].collective
    assert call is not None
    least = min(kernel.seconds for kernel in kernels)
    return PlacedCollective(
        kind=call.kind,  # type: ignore[arg-type]  # messages and unknown kinds, too
        name=" ".join(map(str, call.key)),
        cause=COMMUNICATION,
        bytes=call.bytes,
        stages=stages,
        ranks=call.ranks,
        latency=call.route.latency if call.route and call.route.links else least,
        loads=call.route.links if call.route else (),
    )


def _operations(rank: RankTrace, calls: Calls) -> Iterator[Operation]:
    """The operations of a rank in the order in which its host asked for them."""
    ends = [_end(n, kernel) for n, kernel in enumerate(rank.kernels)]
    launched = {n: place for place, item in enumerate(rank.host) for n in item.launched}
    host = enumerate(rank.host)
    so_far = -1
    for n, kernel in enumerate(rank.kernels):
        while so_far < launched.get(n, -1):
            so_far, item = next(host)
            yield from _of_host(so_far, item, ends)
        after = [ends[cause] for cause in kernel.after]
        after += [f"host {launched[n]}"] if n in launched else []
        yield from _of_kernel(n, kernel, tuple(after), calls)
    for place, item in host:
        yield from _of_host(place, item, ends)


def _of_host(place: int, item: HostSpan, ends: Sequence[str]) -> Iterator[Operation]:
    """The host works for some seconds before it launches or waits."""
    if item.seconds or item.launched or not item.awaited:
        yield _computed(f"host {place}", HOST_STREAM, {HOST: item.seconds})
    if item.awaited:
        after = tuple(ends[n] for n in item.awaited)
        yield _computed(f"wait {place}", HOST_STREAM, {}, after)


def _of_kernel(n: int, kernel: Kernel, after: tuple[str, ...], calls: Calls) -> Iterator[Operation]:
    name, stream = f"{kernel.name} {n}", kernel.stream
    lag = {WAITING: kernel.lag} if kernel.lag else {}
    if kernel.collective is None:
        cause = HOST if kernel.on_host else COMPUTE
        yield _computed(name, stream, {**lag, cause: kernel.seconds}, after)
        return
    if lag:
        yield _computed(f"lag {n}", stream, lag, after)
    call = calls[kernel.collective.key]
    yield Communicate(name=name, calls=(call,), after=() if lag else after, stream=stream)
    if kernel.tail > 0.0:
        yield _computed(_end(n, kernel), stream, {COMMUNICATION: kernel.tail})


def _end(n: int, kernel: Kernel) -> str:
    """The name of the last operation of a kernel."""
    return f"tail {n}" if kernel.collective and kernel.tail > 0.0 else f"{kernel.name} {n}"


def _computed(
    name: str, stream: str, seconds: Mapping[Cause, float], after: tuple[str, ...] = ()
) -> Compute:
    items = tuple(Segment(name=cause, cause=cause, device=each) for cause, each in seconds.items())
    return Compute(name=name, work=Work(name=name, items=items), after=after, stream=stream)
