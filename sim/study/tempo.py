"""How long a step takes, by replay of its passes: thousands of layouts in seconds, no clock.

Layouts whose pipelines have one shape are evaluated together (`sim.study.wave`). Every collective
is given the links to itself, as the topology and the backend have it, so this is the clock's
answer wherever transfers do not contend; the best layouts are confirmed by the clock.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import ceil

import numpy as np

from sim.collectives.shape import Shape
from sim.engine.compose import Span, span_of
from sim.engine.machine import Machine
from sim.parallel import gradients
from sim.parallel.balance import Chunk
from sim.parallel.mesh import Mesh
from sim.parallel.passes import boundary_bytes
from sim.parallel.plan import Plan
from sim.parallel.work import Items, Job, backward, forward, optimizer
from sim.program import Collective, Communicate
from sim.setup import Setup
from sim.study.wave import Floats, Wave, wave

_LAYER, _EMBEDDING, _HEAD = (
    Chunk(layers=1),
    Chunk(layers=0, embedding=True),
    Chunk(layers=0, head=True),
)


@dataclass(slots=True)
class Spans:
    """Passes through one layer, the embedding and the head, each composed once.

    They depend on the microbatch, tensor parallelism and recomputation, not on the rest of a plan.
    """

    _known: dict[tuple[object, ...], dict[tuple[str, Chunk], Span]] = field(default_factory=dict)

    def of(self, job: Job, machine: Machine) -> dict[tuple[str, Chunk], Span]:
        """By phase and piece."""
        plan = job.plan
        key = (plan.microbatch, plan.tp, plan.sequence_parallel, plan.recompute, plan.pp > 1)
        if key not in self._known:
            self._known[key] = {
                (phase, piece): span_over(build(job, piece).items, job, machine)
                for phase, build in (("F", forward), ("B", backward))
                for piece in (_LAYER, _EMBEDDING, _HEAD)
            }
        return self._known[key]


def span_over(items: Items, job: Job, machine: Machine) -> Span:
    """Segments and collectives in a row as one span, collectives alone on their links."""
    whole = Span()
    for item in items:
        if isinstance(item, Collective):
            seconds = alone(item, job.plan, machine)
            whole = whole.then(Span(seconds, 0.0, seconds))
            continue
        span = span_of(item, 1.0)
        for call in item.beside:
            lost = machine.topology.device.interference
            span = span.beside(call.cause, alone(call, job.plan, machine), lost)
        whole = whole.then(span)
    return whole


def alone(call: Collective, plan: Plan, machine: Machine) -> float:
    """Seconds of a collective when nothing else uses its links."""
    shape = group_shape(call.axes, plan, machine.topology.gpus_per_node)
    return duration(machine, call.kind, call.bytes, shape)


def duration(machine: Machine, kind: str, bytes: float, shape: Shape) -> float:
    """Seconds of a call with its links to itself, NICs shared evenly by a node's devices."""
    if shape.ranks == 1:
        return 0.0
    topology = machine.topology
    wire = machine.wire(kind, bytes, shape)
    port = nic = 0.0
    if topology.node is not None:
        fabric = machine.fabric
        port = wire.port / (fabric.port_bandwidth * topology.node.efficiency)
    if topology.network is not None and shape.nodes > 1:
        network, slots = topology.network, topology.gpus_per_node
        share = network.bandwidth * network.efficiency * max(network.nics, 1) / slots
        nic = wire.nic / (share * shape.per_node)
    return wire.latency + max(port, nic)


def group_shape(axes: Sequence[str], plan: Plan, slots: int) -> Shape:
    """How a group along mesh axes lies on nodes of `slots` devices."""
    return _group_shape(tuple(axes), tuple(plan.mesh.items()), slots)


@lru_cache(maxsize=1 << 12)
def _group_shape(axes: tuple[str, ...], mesh: tuple[tuple[str, int], ...], slots: int) -> Shape:
    stride, ranks, per_node = 1, 1, 1
    for axis, size in mesh:  # fastest varying first
        if axis in axes:
            ranks *= size
            if stride < slots and slots % stride == 0:
                per_node *= min(size, slots // stride)
        stride *= size
    per_node = min(per_node, ranks)
    return Shape(ranks=ranks, nodes=-(-ranks // per_node), per_node=per_node)


def times(span: Span, count: int) -> Span:
    """So many spans in a row: lead = lead + (n - 1) max(device, host)."""
    if count == 0:
        return Span()
    more = (count - 1) * max(span.device, span.host)
    return Span(count * span.device, count * span.host, span.lead + more)


@dataclass(frozen=True)
class Tempo:
    """One layout's durations, ready to be put into the columns of a wave."""

    setup: Setup
    spans: Spans = field(default_factory=Spans)
    _cut: dict[Chunk, list[tuple[float, float]]] = field(default_factory=dict)
    _summed: dict[float, float] = field(default_factory=dict)
    _updated: dict[tuple[Chunk, ...], float] = field(default_factory=dict)
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
        found = []
        for number, span in enumerate(forward):
            chunk, stage = divmod(number, len(stages))
            device = self._gathering(span, stages[stage][chunk], early=chunk > 0)
            found.append(Span(device, span.host, span.lead + device - span.device))
        return found

    @cached_property
    def behind(self) -> list[float]:
        """By kind of pass the least time since the end of the pass before: that in which the
        first layer's weights are gathered, whether or not the pass's input is there."""
        stages, row = self.job.chunks, [0.0] * len(self.passes)
        chunks = len(stages[0])
        if self._gathers:
            for number in range(len(stages), chunks * len(stages)):
                chunk, stage = divmod(number, len(stages))
                span = self.passes[2 * chunk * len(stages) + stage]
                piece = stages[stage][chunk]
                place = len(row) - chunks * len(stages) + number
                row[place] = self._gathering(span, piece, early=False, fed=False)
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
        layers = times(known[phase, _LAYER], chunk.layers)
        first = known[phase, _EMBEDDING] if chunk.embedding else Span()
        last = known[phase, _HEAD] if chunk.head else Span()
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
        mesh, node = Mesh(axes=plan.mesh), machine.topology.node_of
        bytes = boundary_bytes(self.job)
        row = [0.0]
        for stage in range(plan.pp):
            here, there = mesh.rank({"pp": stage}), mesh.rank({"pp": (stage + 1) % plan.pp})
            apart = node(here) != node(there)
            shape = Shape(ranks=2, nodes=1 + apart, per_node=2 - apart)
            row.append(duration(machine, "send", bytes, shape))
        return row

    # --- What follows the passes -----------------------------------------------------------------

    def parameters(self, stage: int) -> float:
        return sum(self.job.parameters(chunk) for chunk in self.job.chunks[stage])

    def closing(self, wave: Wave, ends: Floats) -> float:
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
        for number in np.argsort(ends[wave.last[:, stage]]):
            at = self._buckets(wave, ends, stage, int(number), at)
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
        mesh, node = Mesh(axes=job.plan.mesh), self.setup.machine.topology.node_of
        apart = node(0) != node(mesh.rank({"pp": last}))
        shape = Shape(ranks=2, nodes=1 + apart, per_node=2 - apart)
        rows = -(-job.model.vocab // job.plan.tp)
        bytes = rows * job.model.hidden * job.stack.reduced_bytes(job.plan.precision)
        meet = max(free[0], free[last]) + duration(self.setup.machine, "all_reduce", bytes, shape)
        return [meet, *free[1:-1], meet]

    def _update(self, stage: int) -> float:
        """Optimizer and, with ZeRO-1, the gathering of weights."""
        chunks = self.job.chunks[stage]
        if chunks not in self._updated:
            parameters = self.parameters(stage)
            items = optimizer(self.job, parameters, sum(chunk.layers for chunk in chunks))
            span = span_over(items, self.job, self.setup.machine)
            shared = gradients.gathered(self.job, parameters)
            calls = [call for one in shared if isinstance(one, Communicate) for call in one.calls]
            gather = sum(self._alone(call) for call in calls if isinstance(call, Collective))
            self._updated[chunks] = max(span.device, span.lead) + gather
        return self._updated[chunks]


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
