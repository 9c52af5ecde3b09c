"""One training step as a program: passes, their exchanges, gradients, optimizer."""

from collections.abc import Sequence

from sim.parallel import gradients, pipeline
from sim.parallel.exchange import exchanged
from sim.parallel.passes import Passes, sent_bytes
from sim.parallel.pipeline import Pass
from sim.parallel.plan import Plan
from sim.parallel.work import Job, optimizer
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
    emit = Passes(job, stage, order)
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
    if at_the_end or job.plan.copies == 1:
        done += gradients.blocking(job, parameters)
    done += _tie_embeddings(job, stage, reductions)
    layers = sum(chunk.layers for chunk in chunks)
    update = Work(name="optimizer", items=optimizer(job, parameters, layers))
    # Without clipping the numbers that all ranks must agree on are fp16's overflows.
    agreed = (_norm(job),) if job.stack.clip or job.plan.precision == "fp16" else ()
    done.append(Communicate(name="norm", calls=agreed, after=tuple(reductions)))
    done.append(Compute(name="optimizer", work=update, phase="optimizer", sync=True))
    return done + gradients.gathered(job, parameters)


def _tie_embeddings(job: Job, stage: int, reductions: Sequence[str]) -> list[Operation]:
    """First and last stage hold the tied word embedding and sum its gradients, after those of the
    replicas (Megatron-LM, finalize_model_grads)."""
    last = job.plan.pp - 1
    if not job.model.tied_embeddings or last == 0 or stage not in (0, last):
        return []
    rows = -(-job.model.vocab // job.plan.tp)
    bytes = rows * job.model.hidden * job.stack.reduced_bytes(job.plan.precision)
    call = Collective(
        kind="all_reduce",
        axes=("pp",),
        stages=(0, last),
        bytes=bytes,
        name="embedding gradients",
        cause="embedding communication",
    )
    return [Communicate(name="tie embeddings", calls=(call,), after=tuple(reductions))]


def _norm(job: Job) -> Collective:
    """The gradient norm, one number over all ranks that hold a share of the model."""
    axes = ("tp", "pp", "cp", "dp") if job.plan.zero else ("tp", "pp")
    return Collective(
        kind="all_reduce", axes=axes, bytes=4.0, name="gradient norm", cause="data communication"
    )
