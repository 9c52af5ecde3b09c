"""How long a step takes, by replay of its passes: thousands of layouts in seconds, no clock.

Layouts whose pipelines have one shape are evaluated together (`sim.search.pipeline_recurrence`).
Every collective is given the links to itself, as the topology and the backend have it, so this is
the clock's answer wherever transfers do not contend; the best layouts are confirmed by the clock.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from sim.engine.compose import Span
from sim.parallel.balance import Chunk
from sim.parallel.passes import boundary_bytes
from sim.parallel.work import Job
from sim.scenario.setup import Setup
from sim.search.closing import Closing
from sim.search.durations import (  # fmt: skip
    EMBEDDING,
    HEAD,
    LAYER,
    Spans,
    between,
    crossings,
    duration,
    group_shape,
    times,
)
from sim.search.pipeline_recurrence import Floats, Wave, wave


@dataclass(frozen=True)
class Tempo:
    """One layout's durations, ready to be put into the columns of a wave."""

    setup: Setup
    spans: Spans = field(default_factory=Spans)
    _gathered: dict[float, float] = field(default_factory=dict)

    @property
    def job(self) -> Job:
        return self.setup.job

    @property
    def shape(self) -> tuple[object, ...]:
        """Layouts with equal shapes share a wave."""
        plan = self.job.plan
        return plan.pp, plan.microbatches, plan.interleave, plan.schedule

    @cached_property
    def passes(self) -> list[Span]:
        """By kind: (2 chunk + (phase is B)) stages + stage."""
        known = self.spans.of(self.job, self.setup.machine)
        chunks = self.job.plan.interleave if self.job.plan.interleaved else 1
        found: dict[tuple[str, Chunk], Span] = {}
        row = []
        for number in range(chunks):
            for phase in ("F", "B"):
                for stage in self.job.chunks:
                    key = phase, stage[number]
                    if key not in found:
                        found[key] = self._pass(phase, stage[number], known)
                    row.append(found[key])
        return [*row, Span(), *self._first_passes(row, chunks)]

    def _first_passes(self, row: list[Span], chunks: int) -> list[Span]:
        """Forward passes of the first microbatch, behind what they gather of ZeRO-1's weights."""
        stages = self.job.chunks
        forward = [row[2 * c * len(stages) + s] for c in range(chunks) for s in range(len(stages))]
        if not self._gathers:
            return forward
        known: dict[tuple[Chunk, bool], Span] = {}
        for number, span in enumerate(forward):
            chunk, stage = divmod(number, len(stages))
            key = stages[stage][chunk], chunk > 0
            if key not in known:
                device = self._gathering(span, key[0], early=key[1])
                known[key] = Span(device, span.host, span.lead + device - span.device)
            forward[number] = known[key]
        return forward

    @cached_property
    def behind(self) -> list[float]:
        """By kind of pass the least time since the end of the pass before: that in which the
        first layer's weights are gathered, whether or not the pass's input is there."""
        stages, row = self.job.chunks, [0.0] * len(self.passes)
        known: dict[Chunk, float] = {}
        later = range(len(stages), len(stages[0]) * len(stages) if self._gathers else 0)
        for number in later:
            chunk, stage = divmod(number, len(stages))
            piece = stages[stage][chunk]
            if piece not in known:
                span = self.passes[2 * chunk * len(stages) + stage]
                known[piece] = self._gathering(span, piece, early=False, fed=False)
            row[len(row) - len(stages[0]) * len(stages) + number] = known[piece]
        return row

    @property
    def _gathers(self) -> bool:
        plan = self.job.plan
        return bool(plan.zero) and self.job.stack.overlap_gather and plan.replicas > 1

    def _gathering(self, span: Span, chunk: Chunk, *, early: bool, fed: bool = True) -> float:
        """Seconds of a pass each of whose layers waits for its weights: two are asked for as
        its input comes (`fed`), the next as each ends; the first is there already if `early`."""
        layer = self.job.layer.parameters
        counts = [self.job.embedding.parameters] * chunk.embedding + [layer] * chunk.layers
        counts += [self.job.head.parameters] * chunk.head
        compute = span.device / max(len(counts), 1)
        never = float("-inf")
        asked, done, gathered = [0.0, 0.0 if fed else never], 0.0 if fed else never, 0.0
        for number, parameters in enumerate(counts):
            there = early and number == 0
            gathered = max(gathered, asked[number])
            gathered += 0.0 if there else self._gather_seconds(parameters)
            done = max(done, gathered) + compute
            asked.append(done)
        return done

    def _gather_seconds(self, parameters: float) -> float:
        if parameters not in self._gathered:
            whole = parameters * self.job.stack.weight_bytes(self.job.plan.precision)
            shape = group_shape(
                ("cp", "dp"), self.job.plan, self.setup.machine.topology.gpus_per_node
            )
            self._gathered[parameters] = duration(self.setup.machine, "all_gather", whole, shape)
        return self._gathered[parameters]

    def _pass(self, phase: str, chunk: Chunk, known: dict[tuple[str, Chunk], Span]) -> Span:
        layers = times(known[phase, LAYER], chunk.layers)
        first = known[phase, EMBEDDING] if chunk.embedding else Span()
        last = known[phase, HEAD] if chunk.head else Span()
        whole = first.then(layers).then(last) if phase == "F" else last.then(layers).then(first)
        if phase == "F" and self.job.stall:
            whole = Span(0.0, self.job.stall, self.job.stall).then(whole)
        fed = chunk.embedding if phase == "F" else chunk.head
        return whole if fed or not self._scatters else self._gather.then(whole)

    @cached_property
    def _scatters(self) -> bool:
        job = self.job
        return job.stack.scatter_gather and job.plan.tp > 1 and not job.plan.sequence_parallel

    @cached_property
    def _gather(self) -> Span:
        """Tensor-parallel peers that got a share each of a boundary put it together."""
        whole = boundary_bytes(self.job) * self.job.plan.tp
        shape = group_shape(("tp",), self.job.plan, self.setup.machine.topology.gpus_per_node)
        seconds = duration(self.setup.machine, "all_gather", whole, shape)
        return Span(seconds, 0.0, seconds)

    @cached_property
    def messages(self) -> list[float]:
        """Row 0 is silence, row 1 + s between stage s and the next (the first behind the last)."""
        plan, machine = self.job.plan, self.setup.machine
        if plan.pp == 1:
            return [0.0, 0.0]
        bytes = boundary_bytes(self.job)
        mesh, slots = tuple(plan.mesh.items()), machine.topology.gpus_per_node
        far = crossings(mesh, slots)
        seconds = {apart: between(machine, "send", bytes, apart=apart) for apart in set(far)}
        return [0.0, *(seconds[apart] for apart in far)]

    def closing(self, wave: Wave, ends: Floats) -> float:
        """The end of the step, from when each pass of this layout ends ([nodes])."""
        return Closing(self.setup, self.spans, self.passes).after(wave, ends)


def step_times(tempos: Sequence[Tempo]) -> list[float]:
    """The step times (s) of layouts whose pipelines have one shape."""
    job = tempos[0].job
    found = wave(job.plan, job.stack.pipeline_exchange)
    ends = found.ending(
        _columns(tempos, "device"),
        _columns(tempos, "host"),
        _columns(tempos, "lead"),
        np.array([tempo.behind for tempo in tempos]).T,
        np.array([tempo.messages for tempo in tempos]).T,
        opening=job.opening,
        sync=job.stack.exchange_sync,
    )
    return [tempo.closing(found, ends[:, i]) for i, tempo in enumerate(tempos)]


def _columns(tempos: Sequence[Tempo], what: str) -> Floats:
    """[kinds, layouts] of one number of every kind of pass."""
    rows = [[getattr(span, what) for span in tempo.passes] for tempo in tempos]
    return np.array(rows).T
