"""Data parallelism: how gradients are summed over replicas, and when.

Without overlap, one blocking reduction of the whole gradient follows the passes (Megatron-LM 2021).
With overlap, each bucket of gradients is reduced during the passes (`sim.parallel.buckets`). If
states are sharded over a part of the replicas, gradients are reduce-scattered over that part. Each
share is then all-reduced over the other replicas (hybrid sharding, Zhao et al. 2023, section
3.2.2).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

from sim.model.block import Block
from sim.model.execution import ParameterGroup
from sim.parallel.job import Job
from sim.parallel.state import gradient_axes, replica_axes, state_axes
from sim.program.causes import DATA
from sim.program.memory import NOTHING, MemoryUse, added
from sim.program.operations import (
    COMPUTE_STREAM,
    Collective,
    Communicate,
    Drained,
    Kind,
    Operation,
    issued,
)
from sim.program.schedule import PassVariant

STREAM = "data"
GRADIENTS = "gradients"  # the stream of stacks with a separate communicator for gradients
REPLICAS = "replicas"  # the stream that sums shares of gradients over replicas
DRAINED = tuple(Drained(stream) for stream in (STREAM, GRADIENTS, REPLICAS))

Parameters = Mapping[ParameterGroup, float]


def summed(
    job: Job, blocks: Sequence[Block], name: str, *, after: tuple[str, ...] = (), stream: str
) -> list[Operation]:
    """Return the operations that sum gradients of these blocks, compressed if the plan says so."""
    if job.plan.gradients is not None:
        from sim.parallel import compressed

        return list(compressed.summed(job, blocks, name, after=after, stream=stream))
    parameters = added(*(block.parameters for block in blocks))
    return reduced(job, parameters, name, after=after, stream=stream)


def reduced(
    job: Job,
    parameters: Parameters,
    name: str,
    *,
    after: tuple[str, ...] = (),
    stream: str,
    memory: MemoryUse = NOTHING,
) -> list[Operation]:
    """Return the operations that sum the gradients of these parameters over all replicas. An
    all-reduce after a reduce-scatter has a stream of its own and runs beside the next
    reduce-scatter (`all_reduce_stream` of FSDP2, `_all_reduce_stream` of FSDP1), unless reductions
    block the compute stream."""
    rounds = job.known.memo(
        ("sums", job.key, *parameters.items()), lambda: tuple(_rounds(job, parameters))
    )
    done: list[Operation] = []
    for number, calls in enumerate(rounds):
        label = name if number == 0 else f"{name} over replicas"
        done.append(
            Communicate(
                name=label, calls=issued(calls, stream), after=after, stream=stream, memory=memory
            )
        )
        after, memory = (label,), NOTHING
        stream = stream if stream == COMPUTE_STREAM else REPLICAS
    return done


def _rounds(job: Job, parameters: Parameters) -> Iterator[tuple[Collective, ...]]:
    """Yield rounds of collectives; the collectives of all groups in a round run together."""
    width = job.stack.reduced_bytes(job.plan.precision)
    trained = {group: count for group, count in parameters.items() if group.trained}
    sizes = together(trained, lambda group: width)
    for calls in zip_longest(*(_sums(job, group, size) for group, size in sizes.items())):
        yield tuple(call for call in calls if call is not None)


def together(
    parameters: Parameters, width: Callable[[ParameterGroup], float]
) -> dict[ParameterGroup, float]:
    """Return the bytes of each group; groups that differ only in format (`low`) are merged."""
    return added(
        *({replace(group, low=False): count * width(group)} for group, count in parameters.items())
    )


def _sums(job: Job, group: ParameterGroup, size: float) -> list[Collective]:
    """Return the collectives that sum `size` bytes of a group's gradients, in order."""
    plan = job.plan
    inner, outer = state_axes(plan, group), replica_axes(plan, group)
    if not (plan.zero and inner and job.stack.zero_reduce == "reduce_scatter"):
        axes = gradient_axes(plan, group)
        return [_sum("all_reduce", axes, size, f"{group.name} gradients")] if axes else []
    first = _sum("reduce_scatter", inner, size, f"{group.name} gradients")
    if not outer or plan.gradients is not None:  # compressed shares are summed after the passes
        return [first]
    share = size / plan.degree(inner)
    return [first, _sum("all_reduce", outer, share, f"shares of {group.name} gradients")]


def _sum(kind: Kind, axes: tuple[str, ...], size: float, name: str) -> Collective:
    return Collective(kind=kind, axes=axes, bytes=size, name=name, cause=DATA)


def replicated(job: Job, parameters: Parameters) -> bool:
    """Whether any of these parameters are held by several ranks."""
    return any(gradient_axes(job.plan, group) for group in parameters if group.trained)


def sharded(job: Job, parameters: Parameters) -> bool:
    """Whether ZeRO shards the states of any of these parameters over several ranks."""
    return bool(job.plan.zero) and any(state_axes(job.plan, group) for group in parameters)


def gathers(job: Job, variant: PassVariant) -> bool:
    """Whether a pass gathers weights of any of ZeRO's units. ZeRO-3 gathers in every pass that
    needs them. ZeRO-1 and 2 gather updated weights in the first forward pass if the stack says so.
    """
    if job.plan.zero >= 3:
        return variant.kind != "W"
    return job.overlaps_gather and variant.kind == "F" and variant.first


def gradients_leave_early(job: Job, variant: PassVariant) -> bool:
    """Whether offloaded gradients go to the host during passes, not after the last pass. They do
    if they are reduced during the pass, or if they need no reduction."""
    plan = job.plan
    if not (plan.offload.optimizer and plan.offload.overlap and variant.makes_gradients):
        return False
    if plan.zero >= 2:
        return variant.last or not job.no_sync
    return variant.last and (job.overlaps_gradients or plan.data_parallel == 1)


def by_units(job: Job, parameters: Parameters, variant: PassVariant) -> bool:
    """Whether a pass goes unit by unit, since weights, gradients or activations move in it."""
    offload = job.plan.offload
    if offload.activations and variant.kind != "W":
        return True
    if not (sharded(job, parameters) or offload.parameters):
        return gradients_leave_early(job, variant)
    early = job.plan.zero >= 2 or gradients_leave_early(job, variant)
    return (variant.makes_gradients and early) or gathers(job, variant)


def tells_first(job: Job, parameters: Parameters) -> bool:
    """Whether a chunk's first forward pass differs from its other forward passes."""
    if not (sharded(job, parameters) or job.plan.offload.parameters):
        return False
    return job.overlaps_gather if job.plan.zero < 3 else held_all_step(job)


def held_all_step(job: Job) -> bool:
    """Whether weights that a pass has gathered stay until the end of the step."""
    return job.plan.pp > 1 or job.no_sync
