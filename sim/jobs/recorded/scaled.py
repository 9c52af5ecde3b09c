"""Recordings as they would be in another world, where only data parallelism grows or shrinks.

Each rank keeps its own work. Tensors that data parallelism shards (FSDP) become smaller or larger
shares of the same whole. torch rounds shares up to whole rows; this rounding is ignored. Ranks keep
their coordinates along all axes, so the distance between pipeline stages grows with the
data-parallel axis inside them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from math import prod
from operator import mul

from sim.config.errors import InputError
from sim.jobs.recorded.axes import DATA_AXIS, REPLICAS_AXIS, Axes, every_axes
from sim.jobs.recorded.recording import PARTS, Allocation, Group, Operator, Recording, Tensor

_SHARDED = tuple(PARTS.index(part) for part in ("parameters", "gradients", "optimizer"))


def scaled(recordings: Sequence[Recording], world: int) -> tuple[Recording, ...]:
    """The recordings of a step in a world of another size."""
    if all(recording.world == world for recording in recordings):
        return tuple(recordings)
    pairs = zip(recordings, every_axes(recordings), strict=True)
    return tuple(_scaled(recording, axes, world) for recording, axes in pairs)


def _scaled(recording: Recording, axes: Axes, world: int) -> Recording:
    axis = REPLICAS_AXIS if REPLICAS_AXIS in axes.mesh else DATA_AXIS
    inside = recording.world // axes.mesh.get(axis, 1)
    if axis not in axes.mesh:
        fault = f"was recorded on {recording.world} GPUs, none of which divide the batch"
        remedy = f"play it on as many (--gpus {recording.world}), or record it data-parallel"
        raise InputError(recording.script, fault, remedy)
    if world % inside:
        ranks = f"was recorded on {recording.world} ranks, of which {inside} share a batch"
        raise InputError(
            recording.script, f"{ranks}; {world} is no multiple", f"take a multiple of {inside}"
        )
    size = world // inside
    if recording.rank // axes.strides[axis] % axes.mesh[axis] >= size:
        fault = f"rank {recording.rank} has no place among {world}"
        raise InputError(recording.script, fault, "record rank 0")
    places = _Places(axes, {**axes.mesh, axis: size})
    share = axes.mesh[axis] / size if _shards(recording, axes, axis) else 1.0
    moved = replace(
        recording,
        world=world,
        rank=places.rank(recording.rank),
        groups=tuple(places.group(group, axes.of[n]) for n, group in enumerate(recording.groups)),
        events=tuple(
            replace(event, peer=places.rank(event.peer)) if event.peer else event
            for event in recording.events
        ),
    )
    return with_share(moved, share)


def with_share(recording: Recording, share: float) -> Recording:
    """The recording of a rank that holds `share` times as many bytes of weights, gradients and
    optimizer states."""
    return replace(
        recording,
        operators=tuple(_operators(recording, share)),
        memory=tuple(_block(recording, block, share) for block in recording.memory),
    )


class _Places:
    """Finds the place of a rank in a mesh of the same axes with other sizes."""

    def __init__(self, axes: Axes, sizes: Mapping[str, int]) -> None:
        self.axes, self.sizes = axes, sizes
        self.strides = dict(zip(sizes, accumulate(sizes.values(), mul, initial=1), strict=False))

    def rank(self, rank: int) -> int:
        """The rank of the same coordinates."""
        return sum(
            rank // self.axes.strides[axis] % size * self.strides[axis]
            for axis, size in self.axes.mesh.items()
        )

    def group(self, group: Group, along: Sequence[str]) -> Group:
        """The group of ranks that differ along the same axes; adjacent axes become one axis."""
        found: list[tuple[int, int]] = []
        for axis in along:
            stride, size = self.strides[axis], self.sizes[axis]
            if found and prod(found[-1]) == stride:
                stride, size = found[-1][0], found.pop()[1] * size
            found.append((stride, size))
        return Group(first=self.rank(group.first), axes=tuple(found))


def _shards(recording: Recording, axes: Axes, axis: str) -> bool:
    """Whether weights are gathered along an axis."""
    return any(
        event.name == "all_gather" and axis in axes.of[event.group]
        for event in recording.events
        if event.kind == "collective"
    )


def _operators(recording: Recording, share: float) -> Iterator[Operator]:
    """Yield the operators; those of the optimizer alone work on a `share` of the states."""
    phases: dict[int, set[str]] = {}
    for event in recording.events:
        if event.kind == "kernel":
            phases.setdefault(event.operator, set()).add(event.phase)
    for number, operator in enumerate(recording.operators):
        sharded = share != 1.0 and phases.get(number) == {"optimizer"}
        yield _of_share(operator, share) if sharded else operator


def _of_share(operator: Operator, share: float) -> Operator:
    return replace(
        operator,
        inputs=tuple(_tensor(tensor, share) for tensor in operator.inputs),
        outputs=tuple(_tensor(tensor, share) for tensor in operator.outputs),
        written=operator.written * share,
    )


def _tensor(tensor: Tensor, share: float) -> Tensor:
    """A tensor with `share` times as many rows; single numbers (step counters, norms) stay."""
    if prod(tensor.shape) < 2:
        return tensor
    first, *rest = tensor.shape
    return replace(tensor, shape=(max(round(first * share), 1), *rest), elements=-1)


def _block(recording: Recording, block: Allocation, share: float) -> Allocation:
    """A row of memory; a block of states, or of the optimizer's results, has `share` times its
    bytes."""
    update = 0 <= block.event < len(recording.events) and (
        recording.events[block.event].phase == "optimizer"
    )
    sharded = (block.part in _SHARDED or update) and block.bytes > 512
    return replace(block, bytes=max(round(block.bytes * share), 1)) if sharded else block
