"""What a job takes of each device's memory, stage by stage."""

from sim.model.kernels import LayerWork
from sim.parallel import memory
from sim.parallel.balance import Chunk
from sim.parallel.memory import Memory
from sim.parallel.work import Job


def footprints(job: Job) -> list[Memory]:
    """The memory of a rank of every stage."""
    return [footprint(job, stage) for stage in range(job.plan.pp)]


def footprint(job: Job, stage: int) -> Memory:
    """The memory of a rank of one stage."""
    plan, stack, model = job.plan, job.stack, job.model
    width = stack.weight_bytes(plan.precision)
    rows = plan.microbatch * model.seq // plan.cp
    whole = float(rows * model.hidden * width)
    sharded = plan.sequence_parallel
    kept = memory.state(
        precision=plan.precision,
        optimizer=plan.optimizer,
        gradients=stack.fusion.gradients,
        zero=plan.zero,
        dp=plan.copies,
        fused=stack.fused_optimizer,
        master=stack.master_weights,
        allocator=stack.allocator,
    )
    return memory.rank_memory(
        [_works(job, chunk) for chunk in job.chunks[stage]],
        kept=kept,
        allocator=stack.allocator,
        schedule="interleaved" if plan.interleaved else plan.schedule if plan.pp > 1 else "1f1b",
        stage=stage,
        stages=plan.pp,
        microbatches=plan.microbatches,
        gathered=whole if sharded else 0.0,
        output=whole / (plan.tp if sharded else 1),
        tied=_tied(job),
    )


def _tied(job: Job) -> float:
    """Bytes of the output layer's gradient where autograd holds it until the embedding's."""
    if job.stack.fusion.gradients != "fresh" or not job.model.tied_embeddings:
        return 0.0
    rows = -(-job.model.vocab // job.plan.tp)
    return float(rows * job.model.hidden * job.stack.weight_bytes(job.plan.precision))


def _works(job: Job, chunk: Chunk) -> list[LayerWork]:
    """A chunk as a row of layers, embedding and head among them."""
    return [
        *([job.embedding] if chunk.embedding else []),
        *([job.layer] * chunk.layers),
        *([job.head] if chunk.head else []),
    ]
