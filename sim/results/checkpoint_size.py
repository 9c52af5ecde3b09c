"""What a checkpoint holds: all that training needs to go on."""

from sim.model.counts import parameters
from sim.parallel.job import Job
from sim.parallel.memory import state_of


def checkpoint_bytes(job: Job) -> float:
    """Weights in working precision, their fp32 copy and the optimizer's moments, of all ranks."""
    chunks = tuple(chunk for own in job.chunks for chunk in own)
    groups = job.parameters(chunks)
    kept = sum(n * state_of(job, group).moments for group, n in groups.items())
    moments = kept / sum(groups.values())
    width = job.stack.weight_bytes(job.plan.precision)
    master = 4 if width < 4 and job.stack.master_weights else 0
    return parameters(job.model) * float(width + master + moments)
