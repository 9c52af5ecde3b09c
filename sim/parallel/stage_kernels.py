"""The kernels that a stage's passes run, whoever counts them."""

from collections import Counter
from collections.abc import Iterator

from sim.model.kernels import Kernel
from sim.model.operators import kernels_of
from sim.parallel.job import Job


def stage_kernels(job: Job, stage: int) -> Iterator[tuple[Kernel, int]]:
    """Each kernel that a microbatch takes on a rank of a stage, forward, again and back, and in how
    many equal blocks."""
    slots = Counter(slot for chunk in job.chunks[stage] for slot in chunk.slots)
    for slot, often in slots.items():
        own = job.block(*slot)
        for kernel in kernels_of((*own.forward, *own.recompute, *own.backward)):
            yield kernel, often
