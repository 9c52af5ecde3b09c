"""Recordings as they would be on another number of ranks: only data parallelism changes.

Each rank keeps its own work. States that data parallelism shards (FSDP, ZeRO) become smaller or
larger shares of the same whole. torch rounds shares up to whole rows; this rounding is ignored.
Other gathered tensors (losses, features) grow with the ranks. Ranks keep their coordinates along
all axes, so the distance between pipeline stages grows with the data-parallel axis inside them.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from math import prod
from operator import mul

from sim.config.errors import InputError
from sim.jobs.recorded.axes import DATA_AXIS, REPLICAS_AXIS, Axes, calls_along, every_axes
from sim.jobs.recorded.recording import (
    PARTS,
    Allocation,
    Event,
    Group,
    Operator,
    Recording,
    Tensor,
)

STATES = ("parameters", "gradients", "optimizer")
_WIDEST = {"parameters": 4.0, "optimizer": 8.0}  # bytes of a parameter: fp32, Adam's two moments
_PADDED = 1.5  # a rank may hold that many times its share: torch rounds up to whole rows
_SMALL = 1 << 20  # bytes; kernels that read smaller gathered tensors hardly count


def scaled(recordings: Sequence[Recording], world: int) -> tuple[Recording, ...]:
    """The recordings of the same step on `world` ranks."""
    if all(recording.world == world for recording in recordings):
        return tuple(recordings)
    pairs = zip(recordings, every_axes(recordings), strict=True)
    return tuple(_scaled(recording, axes, world) for recording, axes in pairs)


def _scaled(recording: Recording, axes: Axes, world: int) -> Recording:
    axis = REPLICAS_AXIS if REPLICAS_AXIS in axes.mesh else DATA_AXIS
    inside = recording.world // axes.mesh.get(axis, 1)
    if axis not in axes.mesh:
        fault = f"was recorded on {recording.world} GPUs without data parallelism"
        remedy = f"take --gpus {recording.world}, or record it with data parallelism"
        raise InputError(recording.script, fault, remedy)
    if world % inside:
        ranks = f"was recorded on {recording.world} ranks, of which {inside} share a batch"
        raise InputError(
            recording.script, f"{ranks}; {world} is no multiple", f"take a multiple of {inside}"
        )
    size = world // inside
    if recording.rank // axes.strides[axis] % axes.mesh[axis] >= size:
        fault = f"rank {recording.rank} does not exist among {world} ranks"
        raise InputError(recording.script, fault, "record rank 0")
    places = _Places(axes, {**axes.mesh, axis: size})
    factor = size / axes.mesh[axis]
    growing = _growing(recording, axes, axis)
    moved = replace(
        recording,
        world=world,
        rank=places.rank(recording.rank),
        groups=tuple(places.group(group, axes.of[n]) for n, group in enumerate(recording.groups)),
        events=tuple(
            replace(event, peer=places.rank(event.peer))
            if event.peer
            else replace(event, bytes=event.bytes * factor)
            if event in growing
            else event
            for event in recording.events
        ),
        notes=(*recording.notes, *_unscaled(recording, growing, size)),
    )
    return with_share(moved, 1 / factor, sharded_states(recording, axes, axis))


def with_share(recording: Recording, share: float, states: Collection[str] = STATES) -> Recording:
    """The recording of a rank that holds `share` times as many bytes of these states."""
    return replace(
        recording,
        operators=tuple(_operators(recording, share if "optimizer" in states else 1.0)),
        memory=tuple(_block(recording, block, share, states) for block in recording.memory),
    )


class _Places:
    """Finds the place of a rank in a mesh of the same axes with other sizes."""

    def __init__(self, axes: Axes, sizes: Mapping[str, int]) -> None:
        self.axes, self.sizes = axes, sizes
        self.strides = dict(zip(sizes, accumulate(sizes.values(), mul, initial=1), strict=False))

    def rank(self, rank: int) -> int:
        """The rank with the same coordinates."""
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


def sharded_states(recording: Recording, axes: Axes, axis: str) -> tuple[str, ...]:
    """The states of which each rank along an axis holds a share.

    A state is sharded under two conditions. Calls along the axis gather all weights in a step, a
    byte or more of each parameter. The rank holds no more than its share of the state. So gathers
    of losses are no sign of sharding, and ZeRO-1 shards the optimizer's states alone.
    """
    if not _of_weights(recording, axes, axis, _along(recording, axes, axis, "all_gather")):
        return ()
    whole = recording.parameters / axes.mesh.get(axis, 1) * _PADDED
    weights = _held(recording, "parameters")
    moments = _held(recording, "optimizer") or weights
    sharded = ("parameters", "gradients") if weights <= whole * _WIDEST["parameters"] else ()
    return (*sharded, *(("optimizer",) if moments <= whole * _WIDEST["optimizer"] else ()))


def _growing(recording: Recording, axes: Axes, axis: str) -> frozenset[Event]:
    """The calls along an axis that gather or scatter each rank's data rather than weights or
    gradients."""
    gathers, scatters = (
        _along(recording, axes, axis, name) for name in ("all_gather", "reduce_scatter")
    )
    if _of_weights(recording, axes, axis, gathers):
        return frozenset()
    small = not _of_weights(recording, axes, axis, scatters)
    return frozenset((*gathers, *(scatters if small else ())))


def _along(recording: Recording, axes: Axes, axis: str, name: str) -> list[Event]:
    """The collectives of a name that run along an axis."""
    return [recording.events[n] for n in calls_along(recording, axes, (axis,), (name,))]


def _of_weights(recording: Recording, axes: Axes, axis: str, calls: Sequence[Event]) -> bool:
    """Whether calls along an axis move a byte or more of each parameter in this rank's part of the
    model. If the number of parameters is unknown, the calls must move more bytes than all-reduces
    do."""
    moved = sum(call.bytes for call in calls)
    if not recording.parameters:
        return moved > sum(call.bytes for call in _along(recording, axes, axis, "all_reduce"))
    return moved >= recording.parameters * axes.mesh.get(axis, 1) / recording.world


def _held(recording: Recording, part: str) -> int:
    """The bytes of a part as the recorded step begins."""
    held: dict[int, int] = {}
    for row in recording.memory:
        if row.event < 0 <= row.bytes:
            held[row.block] = row.bytes * (PARTS[row.part] == part)
    return sum(held.values())


def _unscaled(recording: Recording, calls: Collection[Event], size: int) -> Iterator[str]:
    """Warn of lines that gather large tensors. The kernels that read the gathered tensors keep
    their recorded sizes."""
    for line in sorted({call.line for call in calls if call.bytes > _SMALL}):
        yield (
            f"{recording.lines[line] if line >= 0 else 'a library'} gathers a tensor of each rank: "
            f"the transfer is scaled to {size:,} ranks, but kernels that read the result keep "
            f"their recorded sizes, and so does memory; capture the script with --world {size}"
        )


def _operators(recording: Recording, share: float) -> Iterator[Operator]:
    """Yield the operators; operators that only the optimizer uses work on a `share` of the
    states."""
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


def _block(
    recording: Recording, block: Allocation, share: float, states: Collection[str]
) -> Allocation:
    """A row of memory; a block of these states, or of the optimizer's results, has `share` times
    its bytes."""
    part = PARTS[block.part]
    results = 0 <= block.event < len(recording.events) and (
        recording.events[block.event].phase == "optimizer"
    )
    if part not in STATES and results:
        part = "optimizer"
    sharded = part in states and block.bytes > 512
    return replace(block, bytes=max(round(block.bytes * share), 1)) if sharded else block
