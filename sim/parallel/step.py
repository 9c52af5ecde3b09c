"""A training step as a program: passes, gradients, optimizer."""

from collections.abc import Iterator
from functools import partial

from sim.parallel import data
from sim.parallel.job import Job, host_time
from sim.parallel.memory import optimizer_use, resident
from sim.parallel.mesh import axes
from sim.parallel.pass_ops import Ends, ends_of, held_up, pass_ops
from sim.parallel.pipeline_p2p import sent_bytes
from sim.parallel.schedule import is_file, listed
from sim.parallel.state import shards, state_axes
from sim.parallel.weight_update import gathered_copies, optimizer
from sim.program.causes import DATA, EMBEDDING
from sim.program.operations import (
    Collective,
    Communicate,
    Compute,
    Drained,
    Operation,
    PassOps,
    Work,
)
from sim.program.program import Exchange, Program, Stage
from sim.program.schedule import PassVariant, Schedule


def training_step(job: Job, schedule: Schedule | None = None) -> Program:
    """Return the program of one optimizer step, by the given or else the job's schedule."""
    schedule = schedule or job.order or job.plan.passes()
    program = Program(
        mesh=job.plan.mesh,
        schedule=schedule,
        stages=tuple(_stages(job, schedule)),
        exchange=_exchange(job, schedule),
        apart=_apart(job, schedule.splits_backward),
    )
    if job.loading is None:
        return program
    from sim.program.beside import beside

    plan = job.plan  # the ranks of the first stage read the samples of the next step
    ranks = plan.degree(axes()) // (plan.pp * plan.data_parallel)
    samples = plan.global_batch / plan.data_parallel
    return beside(program, {0: job.loading.work(samples, ranks)})


def _alone(job: Job, schedule: Schedule) -> bool:
    """Whether a stage updates its weights without waiting for other stages. It then takes the norm
    of its own gradients alone."""
    return schedule.steps > 1 or _apart(job, schedule.splits_backward)


def _apart(job: Job, splits_backward: bool) -> bool:
    """Whether stages end a step apart, by post-validation (Qi et al. 2023, section 4): the gradient
    norm and overflows travel along the pipeline beside the next step's first passes. An invalid
    optimizer step would be rolled back; all simulated steps are valid."""
    return job.stack.post_validation and splits_backward and job.plan.pp > 1


def _exchange(job: Job, schedule: Schedule) -> Exchange:
    """Return how neighbouring stages exchange messages: as the schedule says, or as the stack does.
    Batched exchanges need neighbours that take turns: one chunk a stage, whole backward passes.
    Three kinds of schedules have runtimes in which a pass waits only for its own messages: split
    backward passes (sail-sg/zero-bubble-pipeline-parallelism,
    megatron/core/pipeline_parallel/zerobubble/runtime.py, `schedule_f`), pipelines that do not
    drain (msr-fiddle/pipedream, runtime/communication.py: threads that send and receive), and
    orders of a file (torch/distributed/pipelining/schedules.py, `_PipelineScheduleRuntime`, which
    waits for a send after the last pass)."""
    style, sync = job.stack.pipeline_exchange, job.stack.exchange_sync
    entry = listed(job.plan.pipeline)
    if entry is not None and entry.exchange is not None:
        style, sync = entry.exchange, sync and entry.exchange == "batched"
    elif style == "batched" and (
        schedule.splits_backward or schedule.steps > 1 or is_file(job.plan.pipeline)
    ):
        style, sync = "overlapped", False
    elif style == "batched" and schedule.chunks > 1:
        style = "async-send"
    among = job.plan.pp if job.stack.exchange_group == "pipeline" else 2
    return Exchange(style=style, bytes=sent_bytes(job), sync=sync, among=among)


def _stages(job: Job, schedule: Schedule) -> Iterator[Stage]:
    """Yield the program of each stage; stages with equal work share one object."""
    alone, drains = _alone(job, schedule), schedule.steps == 1
    for stage, chunks in enumerate(job.chunks):
        variants, ends = schedule.actions[stage].variants, ends_of(schedule, stage)
        held = chunks, job.copies[stage], job.plan.versions(stage)
        yield job.known.memo(
            ("stage", job.key, *held, alone, ends, variants),
            partial(_stage, job, stage, ends, variants, alone, drains),
        )


def _stage(
    job: Job,
    stage: int,
    ends: tuple[Ends, ...],
    variants: tuple[PassVariant, ...],
    alone: bool,
    drains: bool,
) -> Stage:
    opening = _opening(job)
    closing = job.known.memo(
        ("closing", job.key, job.chunks[stage], job.copies[stage], alone),
        lambda: _closing(job, stage, alone=alone),
    )
    ops_by_variant = {variant: pass_ops(job, stage, ends, variant) for variant in variants}
    if not drains:
        between = *closing, *([opening] if opening else [])
        ops_by_variant = {
            variant: PassOps((*ops, *between)) if variant.last else ops
            for variant, ops in ops_by_variant.items()
        }
    return Stage(
        opening=opening,
        ops_by_variant=ops_by_variant,
        closing=closing if drains else PassOps(),
        resident=resident(job, stage),
    )


def _opening(job: Job) -> Compute | None:
    """Return the host's work before the first launch of a step (data, zeroing, python)."""
    items = host_time(job.stack.step_host)
    return Compute(name="open", work=Work(name="open", items=items)) if items else None


def _closing(job: Job, stage: int, *, alone: bool) -> PassOps:
    """Return the end of a step: gradients and tied embeddings are summed, the norm is taken,
    weights are updated and gathered."""
    plan, stack = job.plan, job.stack
    if plan.gradients is not None:
        from sim.parallel import compressed
    parameters = job.parameters(job.chunks[stage])
    done: list[Operation] = []
    blocks = [block for chunk in job.chunks[stage] for block in job.blocks(chunk)]
    if plan.defer_embedding_wgrad_compute:
        from sim.parallel.deferred import finished

        done += finished(job, blocks)
    encoded_shares = plan.gradients is not None and plan.zero >= 2
    if encoded_shares or (plan.zero < 2 and not job.overlaps_gradients):
        if plan.gradients is not None:
            items = compressed.encoding(job, blocks)
            work = Work(name="encode", items=items)
            done.append(Compute(name="encode gradients", work=work, after=data.DRAINED))
        elif data.replicated(job, parameters):
            from sim.parallel.buckets import bucketed

            items = bucketed(job, blocks)
            done += [Compute(name="bucket", work=Work(name="bucket", items=items))] if items else []
        done += data.summed(job, blocks, "reduce gradients", stream="compute")
    if plan.gradients is not None:
        done += compressed.decoded(job, blocks, data.DRAINED)
    done += _sum_copies(job, stage)
    done += _tie_embeddings(job, stage)
    # All ranks agree on the norm (for clipping), or on fp16's overflows (without clipping).
    agreed = _norm(job, alone=alone) if stack.clip or plan.precision == "fp16" else ()
    done.append(Communicate(name="norm", calls=agreed, after=data.DRAINED))
    copied = gathered_copies(job, stage)
    done.append(
        Compute(
            name="optimizer",
            work=Work(name="optimizer", items=optimizer(job, stage)),
            sync=not copied,
            memory=optimizer_use(job, stage),
        )
    )
    back: tuple[Drained, ...] = ()
    if plan.offload:
        from sim.parallel.offload import FROM_HOST, host_update, shares_out

        done += [*host_update(job, parameters), *shares_out(job, parameters)]
        back = (Drained(FROM_HOST),)
    if plan.zero in (1, 2) and not job.overlaps_gather:
        from sim.parallel.gathered_weights import weights_gathered

        calls = weights_gathered(job, parameters)
        done += [Communicate(name="gather weights", calls=calls, after=back)] if calls else []
    if copied:
        done.append(Compute(name="copy weights", work=Work(name="copies", items=copied), sync=True))
    return PassOps(held_up(job, done))


def _sum_copies(job: Job, stage: int) -> list[Operation]:
    """Return the sum of gradients over stages that hold the same pieces (DualPipe), after the sum
    over replicas. A rank sums the gradients of the weights that it updates."""
    plan, stack = job.plan, job.stack
    if not job.copies[stage]:
        return []
    scattered = stack.zero_reduce == "reduce_scatter"
    count = sum(
        parameter / (shards(plan, group) if scattered else 1)
        for group, parameter in job.parameters(job.chunks[stage]).items()
        if group.trained
    )
    call = Collective(
        kind="all_reduce",
        axes=("pp",),
        stages=job.copies[stage],
        bytes=count * stack.reduced_bytes(plan.precision),
        name="gradients of both copies",
        cause=DATA,
    )
    return [Communicate(name="sum copies", calls=(call,), after=data.DRAINED)]


def _tie_embeddings(job: Job, stage: int) -> list[Operation]:
    """Return the sums of the word embedding's gradients over the stages that hold it, and of
    learned positions' gradients over encoder and decoder, after the sums over replicas
    (Megatron-LM, finalize_model_grads)."""
    run, positions = job.execution, job.position_holders
    tables = (
        ("embedding", job.embedding_holders, run.vocab * run.model.hidden),
        ("position", positions, run.shape.position_parameters if positions else 0),
    )
    calls = tuple(
        Collective(
            kind="all_reduce",
            axes=("pp",),
            stages=holders,
            bytes=elements * job.stack.reduced_bytes(job.plan.precision),
            name=f"{name} gradients",
            cause=EMBEDDING,
        )
        for name, holders, elements in tables
        if len(holders) > 1 and stage in holders and not job.plan.lora
    )
    return [Communicate(name="tie embeddings", calls=calls, after=data.DRAINED)] if calls else []


def _norm(job: Job, *, alone: bool) -> tuple[Collective, ...]:
    """Return the all-reduce of the gradient norm, one number, over all ranks that share the model,
    or over one stage's ranks if stages update their weights alone."""
    plan = job.plan
    groups = dict.fromkeys(group for chunks in job.chunks for group in job.parameters(chunks))
    axes = dict.fromkeys([*plan.split(["tp"]), *(() if alone else ("pp",))])
    for group in groups:
        axes |= dict.fromkeys(plan.split(group.split_by))
        axes |= dict.fromkeys(state_axes(plan, group) if plan.zero else ())
    call = Collective(
        kind="all_reduce", axes=tuple(axes), bytes=4.0, name="gradient norm", cause=DATA
    )
    return (call,) if axes else ()
