"""Ranks of a trace as a program of the engine: the host is a stream, and so are the device's.

A kernel's step waits for its launch, the host's for the kernels that it awaits; steps of one stream
run in order. Collectives are transfers in which all ranks of the trace meet that take part. What a
trace holds of one rank alone has no peers to wait for, and lasts as long as it did.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import inf

from sim.engine.costs import Cost
from sim.engine.folded import (
    CommunicateStep,
    ComputeStep,
    FoldedProgram,
    LinkClass,
    RoleProgram,
    Step,
    Traffic,
    Transfer,
)
from sim.engine.timeline import Role
from sim.hardware.cluster.link import Link, link_name
from sim.jobs.traces.activity import Collective, Group, Kernel, Rank, Route
from sim.program.causes import COMMUNICATION, COMPUTE, HOST, WAITING, Cause
from sim.program.durations import Duration

HOST_STREAM = "host"


def program(ranks: Sequence[Rank]) -> FoldedProgram:
    """What the clock plays; the roles are the ranks, in their order."""
    meetings = _Meetings(ranks)
    roles = tuple(_Writer(number, rank, meetings).role() for number, rank in enumerate(ranks))
    return FoldedProgram(
        roles=roles, transfers=tuple(meetings.transfers), links=tuple(meetings.links.values())
    )


class _Meetings:
    """Collectives of all ranks as transfers, with the `links` that they load: each lasts as long as
    where it lasted least, since whoever came last did not wait, or as the links let it."""

    def __init__(self, ranks: Iterable[Rank]) -> None:
        seconds: defaultdict[Group, list[float]] = defaultdict(list)
        of: dict[Group, Collective] = {}
        for rank in ranks:
            for kernel in rank.kernels:
                if (call := kernel.collective) is not None:
                    seconds[call.key].append(kernel.seconds)
                    of[call.key] = call
        self.links: dict[Link, LinkClass] = {}
        self._places: dict[Link, int] = {}
        self.number = {key: number for number, key in enumerate(seconds)}
        self.transfers = [
            Transfer(
                name=" ".join(map(str, key)),
                cause=COMMUNICATION,
                kind=of[key].kind,
                arity=len(each),
                traffic=self._traffic(of[key].route, min(each)),
                bytes=of[key].bytes,
                ranks=of[key].ranks,
            )
            for key, each in seconds.items()
        ]

    def _traffic(self, route: Route | None, seconds: float) -> Traffic:
        """Bytes over links, or just so many seconds."""
        if route is None or not route.links:
            return Traffic(latency=seconds if route is None else route.latency, size=0.0, loads=())
        size, loads = max(bytes for _, bytes, _ in route.links), []
        for link, bytes, rate in route.links:
            own = LinkClass(link_name(link), 1, rate)
            self.links.setdefault(link, own)
            loads.append((self._places.setdefault(link, len(self._places)), bytes / size))
        return Traffic(latency=route.latency, size=size, loads=tuple(loads))


class _Writer:
    """The steps of one rank."""

    def __init__(self, number: int, rank: Rank, meetings: _Meetings) -> None:
        self.number, self.rank, self.meetings = number, rank, meetings
        self.streams: dict[str, list[Step]] = {HOST_STREAM: []}
        self.count = 0

    def role(self) -> RoleProgram:
        # Kernels are numbered first: each has one step, one more where it lags behind and sends,
        # and one more where it ends later than its peers.
        own: list[int] = []
        for kernel in self.rank.kernels:
            self.count += 1
            if kernel.collective is not None:
                self.count += (kernel.lag > 0.0) + (kernel.tail > 0.0)
            own.append(self.count - 1)
        launched: dict[int, int] = {}
        for item in self.rank.host:
            after = tuple(own[kernel] for kernel in item.awaited)
            # The host has worked for so long before it waits.
            if item.seconds or item.launched or not after:
                self._add(HOST_STREAM, self._next(), "host", {HOST: item.seconds})
            launched |= dict.fromkeys(item.launched, self.count - 1)
            if after:
                self._add(HOST_STREAM, self._next(), "wait", {}, after)
        for n, kernel in enumerate(self.rank.kernels):
            waits = [own[m] for m in kernel.after]
            self._kernel(kernel, own[n], (*waits, *([launched[n]] if n in launched else [])))
        role = Role(
            index=self.number, name=f"rank {self.rank.rank}", stage=self.number, ranks=1,
            first_rank=self.rank.rank,
        )  # fmt: skip
        return RoleProgram(role, self.streams)

    def _next(self) -> int:
        self.count += 1
        return self.count - 1

    def _kernel(self, kernel: Kernel, index: int, after: tuple[int, ...]) -> None:
        if kernel.collective is None:
            cause = HOST if kernel.on_host else COMPUTE
            parts = {cause: kernel.seconds} | ({WAITING: kernel.lag} if kernel.lag else {})
            self._add(kernel.stream, index, kernel.name, parts, after)
            return
        tail = kernel.tail > 0.0
        if kernel.lag > 0.0:
            self._add(kernel.stream, index - 1 - tail, "lag", {WAITING: kernel.lag}, after)
        met = self.meetings.number[kernel.collective.key]
        step = CommunicateStep(index - tail, kernel.name, (met,), after)
        self.streams.setdefault(kernel.stream, []).append(step)
        if tail:
            self._add(kernel.stream, index, "tail", {COMMUNICATION: kernel.tail})

    def _add(
        self, stream: str, index: int, name: str, parts: dict[Cause, float],
        after: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        seconds = sum(parts.values())
        cost = Cost(Duration(seconds, 0.0, -inf), parts)  # no host but the stream of that name
        step = ComputeStep(index, name, cost, after, label=name)
        self.streams.setdefault(stream, []).append(step)
