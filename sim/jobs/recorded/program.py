"""How do recordings become a program? All ranks of a stage repeat the work of its recorded rank.

Consecutive kernels of a stream become a computation. Streams wait for events, for results of
collectives, and for earlier calls of a communicator, as in the recorded step.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple

from sim.hardware.kernels.dispatch import Phase
from sim.jobs.recorded.axes import Axes, main_stream
from sim.jobs.recorded.beside import with_beside
from sim.jobs.recorded.host import HostTimes
from sim.jobs.recorded.memory import Memory
from sim.jobs.recorded.recording import Event, Recording, passes_of, pieces_of
from sim.model.kernels import Kernel
from sim.parallel.job import host_time
from sim.parallel.segments import Issued, segments
from sim.program.causes import COMPUTE, HOST, OPTIMIZER, RECOMPUTE
from sim.program.memory import NOTHING, MemoryUse
from sim.program.operations import (
    COMPUTE_STREAM,
    Collective,
    Communicate,
    Compute,
    Operation,
    PassOps,
    Receive,
    Segment,
    Send,
    Work,
    issued,
)
from sim.program.program import Program, Stage
from sim.program.schedule import Action, Schedule

_PASS = Schedule(((Action("F", 0),),), ((0,),))

Time = Callable[[Kernel], float]


class EventPlaces(NamedTuple):
    """For each event: the last operations of its stream, and the host's seconds for it."""

    places: Sequence[Sequence[str]]
    hosts: Sequence[float]


def program(
    recordings: Sequence[tuple[Recording, Axes]],
    kernels: Sequence[Sequence[Kernel]],
    *,
    memories: Sequence[Memory],
    time: Time,
    host: HostTimes,
    factors: Mapping[str, float],
) -> tuple[Program, list[EventPlaces]]:
    """The program of recordings, one per pipeline stage in order, and the places of their events.

    `kernels` has the kernel of each operator of each recording; `time` gives a kernel's seconds on
    the device. The step of a stage is a single pass; its operations name the recorded passes to
    which they belong. Messages between stages were recorded, too. `factors` has a factor that
    multiplies the host's seconds (`HOST`), and factors by cause. The collectives of a cause slow
    kernels as if they lasted that many times as long.
    """
    slower = factors.get(HOST, 1.0)
    items = host_time(slower * host.step)
    opening = Compute(name="open", work=Work(name="open", items=items)) if items else None
    stages, noted = [], list[EventPlaces]()
    for number, (recording, axes) in enumerate(recordings):
        memory = memories[number].by_event()
        writer = _Writer(recording, axes, kernels[number], memory, time, host, slower)
        stage = stage_of(
            writer.ops(factors),
            opening=opening,
            resident=memories[number].before_step(),
            pieces=pieces_of(recording),
        )
        stages.append(stage)
        noted.append(EventPlaces(writer.places, writer.hosts))
    return step_of(recordings[0][1].mesh, stages), noted


def stage_of(ops: PassOps, **parts: Any) -> Stage:
    """The stage of a recorded step, which runs a single pass; `parts` are further fields of the
    stage."""
    (variant,) = _PASS.actions[0].variants
    return Stage(ops_by_variant={variant: ops}, **parts)


def step_of(mesh: Mapping[str, int], stages: Sequence[Stage]) -> Program:
    """The program of a recorded step."""
    orders = ((Action("F", 0),),) * len(stages)
    schedule = Schedule(orders, ((0,),) * len(stages), "recorded")
    return Program(mesh=mesh, schedule=schedule, stages=tuple(stages))


class _Writer:
    """Writes the operations of one recording."""

    def __init__(
        self,
        recording: Recording,
        axes: Axes,
        kernels: Sequence[Kernel],
        memory: Mapping[int, MemoryUse],
        time: Time,
        host: HostTimes,
        slower: float,
    ) -> None:
        self.recording, self.axes, self.kernels = recording, axes, kernels
        self.time, self.host, self.slower = time, host, slower
        self.memory, self.changed = memory, NOTHING  # `changed`: uses since the last operation
        self.main = main_stream(recording)
        self.waited = {event.mark for event in recording.events if event.kind in ("wait", "sync")}
        self.done: list[Operation] = []
        self.passes: list[Action | None] = []  # the pass of each operation in `done`
        self.now: Action | None = None  # the pass of the present event
        self.graph = 0  # the CUDA graph of the previous event
        self.hosts: list[float] = []  # seconds for each event
        self.rows: dict[str, list[tuple[Event, Issued]]] = defaultdict(list)
        self.begun: dict[str, tuple[Action | None, Phase]] = {}  # the pass of each row
        self.last: dict[str, str] = {}  # the last operation on each stream
        self.seen: dict[str, str] = {}  # the last operation for which the host has waited
        self.after: dict[str, dict[str, None]] = defaultdict(dict)  # for its next work to await
        self.marks: dict[int, tuple[str, ...]] = {}
        self.results: dict[int, str] = {}  # the operation of each collective
        self.queues: dict[int, str] = {}  # the last collective of each communicator
        self.keys: Counter[tuple[int, int]] = Counter()
        self.counts: Counter[tuple[str, ...]] = Counter()
        self.places: list[tuple[str, ...]] = []
        self.unplaced: dict[str, list[int]] = defaultdict(list)  # events of each row

    def ops(self, factors: Mapping[str, float]) -> PassOps:
        """All operations, in the host's order (`with_beside` explains the `factors`)."""
        events = zip(self.recording.events, passes_of(self.recording), strict=True)
        for number, (event, self.now) in enumerate(events):
            self.hosts.append(0.0)
            getattr(self, f"_{event.kind}")(event, self._stream(event))
            self.graph = event.graph
            self._place(self._stream(event))
            self.changed = self.changed.then(self.memory.get(number, NOTHING))
        for stream in list(self.rows):
            self._flush(stream)
        return PassOps(tuple(with_beside(self.done, factors)), tuple(self.passes))

    def _place(self, stream: str) -> None:
        if stream in self.rows:
            self.unplaced[stream].append(len(self.places))
        self.places.append(self._so_far(stream))

    def _stream(self, event: Event) -> str:
        return COMPUTE_STREAM if event.stream == self.main else f"stream {event.stream}"

    def _kernel(self, event: Event, stream: str) -> None:
        read = [self.results[mark] for mark in event.reads if mark in self.results]
        self._waits(stream, read)
        if self.begun.get(stream) != (self.now, event.phase):
            self._flush(stream)
            self.begun[stream] = self.now, event.phase
        self.rows[stream].append((event, self._issued(event)))

    def _record(self, event: Event, stream: str) -> None:
        if event.mark in self.waited:
            self._flush(stream)
            self.marks[event.mark] = self._so_far(stream)

    def _wait(self, event: Event, stream: str) -> None:
        self._waits(stream, self.marks.get(event.mark, ()))

    def _done(self, event: Event, stream: str) -> None:
        if event.mark in self.results:
            self._waits(stream, [self.results[event.mark]])

    def _sync(self, event: Event, stream: str) -> None:
        """Let the host wait for all work of a stream, including collectives."""
        self._flush(stream, sync=True)
        if self.after[stream] or self.last.get(stream) != self.seen.get(stream):
            name = f"wait {len(self.done)}"
            work = Work(name=name, items=())
            self._add(
                Compute(name=name, work=work, after=self._taken(stream), stream=stream, sync=True)
            )
        self.seen[stream] = self.last.get(stream, "")

    def _collective(self, event: Event, stream: str) -> None:
        if not self.axes.of[event.group]:
            return
        self._flush(stream, issue=True)
        axes = self.axes.of[event.group]
        self.counts[event.name, *axes] += 1  # counted in the name, which stages' equal calls share
        call = Collective(
            kind=event.name,  # type: ignore[arg-type]
            axes=axes,
            bytes=event.bytes,
            name=f"{event.name} over {', '.join(axes)} {self.counts[event.name, *axes]}",
            cause=self.axes.cause(event.group, event.name),
        )
        queue = stream if event.blocking else f"group {event.group}"
        before = dict.fromkeys(self._taken(stream) if event.blocking else self._so_far(stream))
        # NCCL lets a communicator's kernels run in the order in which they are launched, whatever
        # their streams (src/enqueue.cc, ncclLaunchPrepare: all wait for its `deviceStream`).
        if event.group in self.queues:
            before[self.queues[event.group]] = None
        calls = issued((call,), queue)
        self._add(Communicate(name=call.name, calls=calls, after=tuple(before), stream=queue))
        self.results[event.mark] = call.name
        self.queues[event.group] = call.name

    def _message(self, event: Event, stream: str) -> None:
        self._flush(stream, issue=True)
        sent = event.kind == "send"
        source, to = self.axes.stage(self.recording.rank), self.axes.stage(event.peer)
        source, to = (source, to) if sent else (to, source)
        self.keys[source, to] += 1
        key = f"{source} to {to}, {self.keys[source, to]}"
        call = (
            Send(to=to, bytes=event.bytes, key=key)
            if sent
            else Receive(source=source, bytes=event.bytes, key=key)
        )
        name, queue = f"{event.kind} {key}", f"{event.kind} {to if sent else source}"
        self._add(Communicate(name=name, calls=(call,), after=self._so_far(stream), stream=queue))
        self.results[event.mark] = name

    _send = _recv = _message

    def _waits(self, stream: str, ends: Sequence[str]) -> None:
        """Let the stream's next operation wait for the ends of these operations."""
        known = {*self.after[stream], self.last.get(stream)}
        new = [end for end in ends if end not in known]
        if new:
            self._flush(stream)
            self.after[stream] |= dict.fromkeys(new)

    def _so_far(self, stream: str) -> tuple[str, ...]:
        last = {self.last[stream]: None} if stream in self.last else {}
        return tuple({**self.after[stream], **last})

    def _taken(self, stream: str) -> tuple[str, ...]:
        return tuple(self.after.pop(stream, ()))

    def _flush(self, stream: str, *, sync: bool = False, issue: bool = False) -> None:
        """End a stream's computation. With `sync`, the host waits for its end. With `issue`, the
        host then issues a call, and the seconds of issuing it are added."""
        row, call = self.rows.pop(stream, []), self.slower * self.host.call if issue else 0.0
        items = [*self._items(row), *host_time(call)]
        if issue:
            self.hosts[-1] += call
        if items:
            action, kind = self.begun[stream] if row else (self.now, "issue")
            name = f"{action or kind} {len(self.done)}"
            work, after = Work(name=kind, items=tuple(items)), self._taken(stream)
            self._add(Compute(name=name, work=work, after=after, stream=stream, sync=sync), action)
            if sync:
                self.seen[stream] = name
        for event in self.unplaced.pop(stream, ()):
            self.places[event] = self._so_far(stream)

    def _items(self, row: Sequence[tuple[Event, Issued]]) -> Iterator[Segment | Collective]:
        """Yield the segments of a row; the consecutive kernels of a segment share a cause."""
        for again, same in groupby(row, lambda pair: pair[0].again):
            phase = row[0][0].phase
            cause = OPTIMIZER if phase == "optimizer" else RECOMPUTE if again else COMPUTE
            kernels = [issued for _, issued in same]  # with the host's seconds for each launch
            yield from segments(kernels, name=phase, cause=cause, time=self.time, launch=0.0)

    def _issued(self, event: Event) -> Issued:
        """A kernel with the host's seconds; the first kernel of a CUDA graph has the seconds of the
        whole graph."""
        kernel = self.kernels[event.operator]
        if not event.graph:
            operator = self.recording.operators[event.operator]
            seconds = self.host.of(event, operator, kernel)
        else:
            seconds = self.host.graph if event.graph != self.graph else 0.0
        seconds *= self.slower
        self.hosts[-1] += seconds
        return Issued(kernel, seconds)

    def _add(self, operation: Operation, action: Action | None = None) -> None:
        """Append an operation of a pass (None: of no pass)."""
        self.done.append(replace(operation, memory=self.changed))
        self.passes.append(action)
        self.changed = NOTHING
        self.last[operation.stream] = operation.name
