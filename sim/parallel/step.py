"""One training step as a program: passes, their exchanges, gradients, optimizer."""

from collections.abc import Sequence

from sim.model.kernel import Stream
from sim.parallel import gradients, pipeline
from sim.parallel.balance import Chunk
from sim.parallel.exchange import exchanged, name_of
from sim.parallel.pipeline import Pass
from sim.parallel.plan import Plan
from sim.parallel.sharded import sharded_pass
from sim.parallel.work import (
    Job,
    backward,
    backward_pieces,
    forward,
    forward_pieces,
    optimizer,
    with_host,
)
from sim.program import Collective, Communicate, Compute, Operation, Program, Segment, Work


def training_step(job: Job) -> Program:
    """The program of one optimizer step of `job`."""
    schedule = passes(job.plan)
    stages = tuple(_stage(job, stage, schedule[stage]) for stage in range(job.plan.pp))
    return Program(mesh=job.plan.mesh, stages=stages)


def passes(plan: Plan) -> Sequence[Sequence[Pass]]:
    """Per stage, the passes in order."""
    stages, microbatches = plan.pp, plan.microbatches
    if plan.interleaved:
        return pipeline.interleaved(stages, microbatches, plan.interleave)
    if plan.schedule == "naive":
        return pipeline.naive(stages, microbatches)
    if plan.schedule == "gpipe" and stages > 1:
        return pipeline.gpipe(stages, microbatches)
    return pipeline.one_f_one_b(stages, microbatches)


def _stage(job: Job, stage: int, order: Sequence[Pass]) -> tuple[Operation, ...]:
    plan = job.plan
    emit = _Passes(job, stage, order)
    done = exchanged(
        order,
        emit,
        stage=stage,
        stages=plan.pp,
        chunks=plan.interleave if plan.interleaved else 1,
        bytes=sent_bytes(job),
        style=job.stack.pipeline_exchange,
        sync=job.stack.exchange_sync,
    )
    return (*_opening(job), *done, *_closing(job, stage, emit.reductions))


def boundary_bytes(job: Job) -> float:
    """Bytes between two stages per rank and microbatch: the activations, cut over tensor ranks
    where the stack scatters them (Narayanan et al. 2021, section 4.1) or they are sharded."""
    plan, model = job.plan, job.model
    whole = plan.microbatch * model.seq * model.hidden * job.stack.weight_bytes(plan.precision)
    return whole / (plan.tp if _scattered(job) else 1) / plan.cp


def sent_bytes(job: Job) -> float:
    """The same as they cross the network: compressed where the plan says so."""
    whole, width = boundary_bytes(job), job.stack.weight_bytes(job.plan.precision)
    activations = job.plan.activations
    return whole if activations is None else activations.bytes(whole / width, width)


def _compressed(job: Job, chunk: Chunk, one: Pass, work: Work) -> Work:
    """A pass that decodes what it receives and encodes what it sends."""
    activations = job.plan.activations
    if activations is None or job.plan.pp == 1:
        return work
    elements = boundary_bytes(job) / job.stack.weight_bytes(job.plan.precision)
    kernel = Stream(name="compression", bytes=activations.encode_bytes(elements))
    launch, device = job.stack.launch_forward, job.time(kernel)
    coding = Segment(
        name="code activations", cause="compression", device=device, host=launch,
        lead=launch + device,
    )  # fmt: skip
    first, last = (
        (chunk.embedding, chunk.head) if one.phase == "F" else (chunk.head, chunk.embedding)
    )
    before, after = () if first else (coding,), () if last else (coding,)
    return Work(name=work.name, items=(*before, *work.items, *after))


def _scattered(job: Job) -> bool:
    return job.plan.sequence_parallel or (job.stack.scatter_gather and job.plan.tp > 1)


class _Passes:
    """Emits the compute operations of each pass of one stage; builds each chunk's work once."""

    def __init__(self, job: Job, stage: int, order: Sequence[Pass]) -> None:
        self.job, self.stage, self.chunks = job, stage, job.chunks[stage]
        self._works: dict[tuple[str, int], Work] = {}
        self._pieces: dict[tuple[str, int], list[tuple[Work, float]]] = {}
        self._last_backward = {one.chunk: one for one in order if one.phase == "B"}
        self.reductions: list[str] = []

    def __call__(self, one: Pass, after: tuple[str, ...]) -> list[Operation]:
        if self.job.plan.zero >= 2 and self.job.plan.replicas * self.job.plan.cp > 1:
            pieces = self._cut(one)
            return self._noted(sharded_pass(self.job, one, name_of(one), after, pieces))
        compute = Compute(
            name=name_of(one),
            work=self._work(one),
            after=after,
            phase=one.phase,
            chunk=one.chunk,
            microbatch=one.microbatch,
        )
        if not self._releases_gradients(one):
            return [compute]
        pieces = self._cut(one)
        return self._noted(gradients.overlapped(self.job, pieces, compute))

    def _cut(self, one: Pass) -> list[tuple[Work, float]]:
        """A pass in pieces, each with its parameters; built once a chunk."""
        key = (one.phase, one.chunk)
        if key not in self._pieces:
            cut = backward_pieces if one.phase == "B" else forward_pieces
            self._pieces[key] = cut(self.job, self.chunks[one.chunk])
        return self._pieces[key]

    def _noted(self, done: list[Operation]) -> list[Operation]:
        """Remember the last reduction: the optimizer waits for it, and its stream is in order."""
        names = [op.name for op in done if isinstance(op, Communicate)]
        self.reductions = names[-1:] or self.reductions
        return done

    def _releases_gradients(self, one: Pass) -> bool:
        overlap = self.job.stack.overlap_gradients and self.job.plan.replicas > 1
        return overlap and self._last_backward.get(one.chunk) == one

    def _work(self, one: Pass) -> Work:
        key = (one.phase, one.chunk)
        if key not in self._works:
            self._works[key] = self._built(one)
        return self._works[key]

    def _built(self, one: Pass) -> Work:
        job, chunk = self.job, self.chunks[one.chunk]
        work = _stalled(job, chunk) if one.phase == "F" else backward(job, chunk)
        work = _compressed(job, chunk, one, work)
        first = chunk.embedding if one.phase == "F" else chunk.head
        if first or not _scattered(job) or job.plan.sequence_parallel:
            return work
        gather = Collective(
            kind="all_gather",
            axes=("tp",),
            bytes=boundary_bytes(job) * job.plan.tp,
            name="gather boundary",
            cause="tensor communication",
        )
        return Work(name=work.name, items=(gather, *work.items))


def _stalled(job: Job, chunk: Chunk) -> Work:
    """A forward pass behind what the host loses to the allocator."""
    work = forward(job, chunk)
    return Work(name=work.name, items=with_host(work.items, job.stall)) if job.stall else work


def _opening(job: Job) -> list[Operation]:
    """What the host does before the first launch of a step (data, zeroing, python)."""
    seconds = job.opening
    if seconds == 0.0:
        return []
    segment = Segment(name="host", cause="compute", device=0.0, host=seconds, lead=seconds)
    return [Compute(name="open", work=Work(name="open", items=(segment,)))]


def _closing(job: Job, stage: int, reductions: Sequence[str]) -> list[Operation]:
    """Gradients summed, embedding tied, norm taken, weights updated and shared."""
    chunks = job.chunks[stage]
    parameters = sum(job.parameters(chunk) for chunk in chunks)
    done: list[Operation] = []
    at_the_end = job.plan.zero < 2 and not job.stack.overlap_gradients
    if at_the_end or job.plan.replicas == 1:
        done += gradients.blocking(job, parameters)
    done += _tie_embeddings(job, stage)
    layers = sum(chunk.layers for chunk in chunks)
    update = Work(name="optimizer", items=optimizer(job, parameters, layers))
    done.append(Communicate(name="norm", calls=(_norm(job),), after=tuple(reductions)))
    done.append(Compute(name="optimizer", work=update, phase="optimizer", sync=True))
    return done + gradients.gathered(job, parameters)


def _tie_embeddings(job: Job, stage: int) -> list[Operation]:
    """First and last stage hold the tied embedding and sum its gradients (Megatron-LM)."""
    last = job.plan.pp - 1
    if not job.model.tied_embeddings or last == 0 or stage not in (0, last):
        return []
    bytes = job.embedding.parameters * job.stack.reduced_bytes(job.plan.precision)
    call = Collective(
        kind="all_reduce",
        axes=("pp",),
        stages=(0, last),
        bytes=bytes,
        name="embedding gradients",
        cause="embedding communication",
    )
    return [Communicate(name="tie embeddings", calls=(call,))]


def _norm(job: Job) -> Collective:
    """The gradient norm, one number over all ranks that hold a share of the model."""
    axes = ("tp", "pp", "cp", "dp") if job.plan.zero else ("tp", "pp")
    return Collective(
        kind="all_reduce", axes=axes, bytes=4.0, name="gradient norm", cause="data communication"
    )
