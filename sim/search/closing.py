"""What follows the passes of a step: gradients summed, embeddings tied, the optimizer."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil

import numpy as np

from sim.engine.compose import Span
from sim.parallel import gradients
from sim.parallel.balance import Chunk
from sim.parallel.work import Job
from sim.program.operations import Collective, Communicate
from sim.scenario.setup import Setup
from sim.search.durations import Spans, alone, between, crossings, duration, group_shape
from sim.search.pipeline_recurrence import Floats, Wave


@dataclass(frozen=True, slots=True)
class Closing:
    """The end of one layout's step; `passes` by kind, as `sim.search.step_estimate` has them."""

    setup: Setup
    spans: Spans
    passes: Sequence[Span]
    _cut: dict[Chunk, list[tuple[float, float]]] = field(default_factory=dict)
    _summed: dict[float, float] = field(default_factory=dict)
    _updated: dict[tuple[Chunk, ...], float] = field(default_factory=dict)

    @property
    def job(self) -> Job:
        return self.setup.job

    def parameters(self, stage: int) -> float:
        return sum(self.job.parameters(chunk) for chunk in self.job.chunks[stage])

    def after(self, wave: Wave, ends: Floats) -> float:
        """The end of the step, from when each pass of this layout ends ([nodes])."""
        free = [self._reduced(wave, ends, stage) for stage in range(wave.stages)]
        free = self._tied(free)
        plan, machine = self.job.plan, self.setup.machine
        axes = ("tp", "pp", "cp", "dp") if plan.zero else ("tp", "pp")
        if self.job.stack.clip or plan.precision == "fp16":  # all agree on one number
            shape = group_shape(axes, plan, machine.topology.gpus_per_node)
            free = [max(free) + duration(machine, "all_reduce", 4.0, shape)] * len(free)
        return max(at + self._update(stage) for stage, at in enumerate(free))

    def _reduced(self, wave: Wave, ends: Floats, stage: int) -> float:
        """When a stage has its gradients summed."""
        done = float(ends[wave.ends[stage]])
        if self.job.plan.replicas == 1:
            return done
        if not self.job.stack.overlap_gradients:
            return done + self._reduction(self.parameters(stage))
        at = 0.0
        for number in np.argsort(ends[wave.last[:, stage]]).tolist():
            at = self._buckets(wave, ends, stage, number, at)
        return max(done, at)

    def _buckets(self, wave: Wave, ends: Floats, stage: int, number: int, at: float) -> float:
        """Buckets leave as the last backward pass of a chunk fills them, one after the other."""
        chunk = self.job.chunks[stage][number]
        if chunk not in self._cut:
            self._cut[chunk] = self._buckets_of(chunk)
        end = float(ends[wave.last[number, stage]])
        whole = self.passes[(2 * number + 1) * wave.stages + stage].device
        for missing, seconds in self._cut[chunk]:
            at = max(at, end - whole * missing) + seconds
        return at

    def _buckets_of(self, chunk: Chunk) -> list[tuple[float, float]]:
        """Per bucket the share of the pass that still follows when it is full, and its seconds."""
        job, stack = self.job, self.job.stack
        width = stack.reduced_bytes(job.plan.precision)
        pieces = [job.head.parameters] * chunk.head + [job.layer.parameters] * chunk.layers
        pieces += [job.embedding.parameters] * chunk.embedding
        found, held, gone, limit = [], 0.0, 0.0, stack.first_bucket / width
        for index, parameters in enumerate(pieces, 1):
            held, gone = held + parameters, gone + parameters
            if held >= limit or index == len(pieces):
                parts = max(1, ceil(held * width / stack.bucket)) if stack.bucket > 1 else 1
                found.append((1.0 - gone / sum(pieces), parts * self._reduction(held / parts)))
                held, limit = 0.0, stack.bucket / width
        return found

    def _reduction(self, parameters: float) -> float:
        if parameters not in self._summed:
            calls = gradients.reduction(self.job, parameters, "gradients")
            self._summed[parameters] = sum(self._alone(call) for call in calls)
        return self._summed[parameters]

    def _alone(self, call: Collective) -> float:
        return alone(call, self.job.plan, self.setup.machine)

    def _tied(self, free: list[float]) -> list[float]:
        """First and last stage sum the gradients of the tied embedding."""
        job, last = self.job, len(free) - 1
        if not job.model.tied_embeddings or last == 0:
            return free
        machine = self.setup.machine
        mesh, slots = tuple(job.plan.mesh.items()), machine.topology.gpus_per_node
        rows = -(-job.model.vocab // job.plan.tp)
        bytes = rows * job.model.hidden * job.stack.reduced_bytes(job.plan.precision)
        seconds = between(machine, "all_reduce", bytes, apart=crossings(mesh, slots)[last])
        meet = max(free[0], free[last]) + seconds
        return [meet, *free[1:-1], meet]

    def _update(self, stage: int) -> float:
        """Optimizer and, with ZeRO-1, the gathering of weights."""
        chunks = self.job.chunks[stage]
        if chunks not in self._updated:
            parameters = self.parameters(stage)
            layers = sum(chunk.layers for chunk in chunks)
            update = self.spans.update(self.job, self.setup.machine, parameters, layers)
            shared = gradients.gathered(self.job, parameters)
            calls = [call for one in shared if isinstance(one, Communicate) for call in one.calls]
            gather = sum(self._alone(call) for call in calls if isinstance(call, Collective))
            self._updated[chunks] = update + gather
        return self._updated[chunks]
