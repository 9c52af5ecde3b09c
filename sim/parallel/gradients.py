"""Data parallelism: how gradients are summed over replicas, and when.

Without overlap, one blocking collective over the whole gradient follows the passes (Megatron-LM
2021). With it, gradients are cut into buckets in the order in which the backward pass completes
them, and each bucket leaves while the pass goes on (DDP, Li et al. 2020, section 3.2.3).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sim.parallel.work import Job, join
from sim.program import Collective, Communicate, Compute, Kind, Operation, Work

CAUSE = "data communication"


@dataclass(frozen=True, slots=True)
class Bucket:
    """Backward work that ends with `parameters` gradients ready to leave."""

    work: Work
    parameters: float


def buckets(pieces: Iterable[tuple[Work, float]], *, first: float, size: float) -> Iterator[Bucket]:
    """Cut the pieces of a backward pass into buckets of at least `size` parameters.

    The first bucket of the pass may be smaller, so that communication starts early.
    """
    held: list[Work] = []
    count, limit = 0.0, first
    for work, parameters in pieces:
        held.append(work)
        count += parameters
        if count >= limit:
            yield Bucket(join(held), count)
            held, count, limit = [], 0.0, size
    if held:
        yield Bucket(join(held), count)


def reduction(job: Job, parameters: float, name: str) -> tuple[Collective, ...]:
    """The collective that sums the gradients of `parameters` parameters over the replicas."""
    if job.plan.copies == 1:
        return ()
    kind: Kind = "all_reduce"
    if job.plan.zero and job.stack.zero_reduce == "reduce_scatter":
        kind = "reduce_scatter"
    bytes = parameters * job.stack.reduced_bytes(job.plan.precision)
    return (Collective(kind=kind, axes=("cp", "dp"), bytes=bytes, name=name, cause=CAUSE),)


def overlapped(job: Job, pieces: Iterable[tuple[Work, float]], compute: Compute) -> list[Operation]:
    """The last backward pass of a chunk in pieces, each followed by its bucket's reduction."""
    stack = job.stack
    width = stack.reduced_bytes(job.plan.precision)
    cut = list(buckets(pieces, first=stack.first_bucket / width, size=stack.bucket / width))
    done: list[Operation] = []
    for number, bucket in enumerate(cut):
        last = number == len(cut) - 1
        name = compute.name if last else f"{compute.name} bucket {number}"
        done.append(
            Compute(
                name=name,
                work=bucket.work,
                after=compute.after if number == 0 else (),
                phase=compute.phase,
                chunk=compute.chunk,
                microbatch=compute.microbatch,
            )
        )
        done += _leaving(job, bucket.parameters, f"{compute.chunk}.{number}", name)
    return done


def _leaving(job: Job, parameters: float, label: str, after: str) -> list[Operation]:
    """The reduction of gradients that are ready together.

    A layer's gradients leave in one call also where DDP would cut them into several buckets: with
    the ring latencies that were fitted to whole layers, cutting them overstates large clusters.
    """
    calls = reduction(job, parameters, f"gradients {label}")
    if not calls:
        return []
    return [Communicate(name=f"reduce {label}", calls=calls, after=(after,), stream="data")]


def blocking(job: Job, parameters: float) -> list[Operation]:
    """One reduction of everything, after the last pass."""
    calls = reduction(job, parameters, "gradients")
    return [Communicate(name="reduce gradients", calls=calls)] if calls else []


def gathered(job: Job, parameters: float) -> list[Operation]:
    """ZeRO-1: every replica has updated its share of the weights and sends it to the others."""
    if job.plan.zero not in (1, 2) or job.plan.copies == 1 or job.stack.overlap_gather:
        return []
    call = Collective(
        kind="all_gather",
        axes=("cp", "dp"),
        bytes=parameters * job.stack.weight_bytes(job.plan.precision),
        name="weights",
        cause=CAUSE,
    )
    return [Communicate(name="gather weights", calls=(call,))]
