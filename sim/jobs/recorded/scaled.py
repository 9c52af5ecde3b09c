"""Recordings as they would be in another world, where only data parallelism grows or shrinks.

Each rank's own work stays; what data parallelism shards (FSDP) is a smaller or larger share of the
same whole. Shares are rounded up to whole rows by torch, which is left out. Ranks keep their places
along all axes, so that the stages of a pipeline move apart where data parallelism lies within.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from math import prod
from operator import mul

from sim.config.errors import InputError
from sim.jobs.recorded.axes import DATA_AXIS, REPLICAS_AXIS, Axes, axes_of
from sim.jobs.recorded.recording import PARTS, Allocation, Group, Operator, Recording, Tensor

_SHARDED = tuple(PARTS.index(part) for part in ("parameters", "gradients", "optimizer"))


def scaled(recordings: Sequence[Recording], world: int) -> tuple[Recording, ...]:
    """The recordings of one step in another world. Raises `InputError` where more than data
    parallelism would have to change.

    The outermost data axis changes; where it shards states, an optimizer's operators and the
    blocks of states scale with the share.
    """
    if all(own.world == world for own in recordings):
        return tuple(recordings)
    return tuple(
        _scaled(own, axes_of(own, *(o for o in recordings if o is not own)), world)
        for own in recordings
    )


def _scaled(own: Recording, axes: Axes, world: int) -> Recording:
    axis = REPLICAS_AXIS if REPLICAS_AXIS in axes.mesh else DATA_AXIS
    inside = own.world // axes.mesh.get(axis, 1)
    if axis not in axes.mesh or world % inside:
        what = f"was recorded on {own.world} ranks, of which {inside} share a batch; {world} do not"
        raise InputError(own.script, what, f"take a multiple of {inside}")
    size = world // inside
    if own.rank // axes.strides[axis] % axes.mesh[axis] >= size:
        what = f"rank {own.rank} has no place among {world}"
        raise InputError(own.script, what, "record rank 0")
    places = _Places(axes, {**axes.mesh, axis: size})
    share = axes.mesh[axis] / size if _shards(own, axes, axis) else 1.0
    return replace(
        own,
        world=world,
        rank=places.rank(own.rank),
        groups=tuple(places.group(group, axes.of[n]) for n, group in enumerate(own.groups)),
        events=tuple(
            replace(event, peer=places.rank(event.peer)) if event.peer else event
            for event in own.events
        ),
        operators=tuple(_operators(own, share)),
        memory=tuple(_block(one, share) for one in own.memory),
    )


class _Places:
    """Where ranks are in a mesh of the same axes with other sizes."""

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
        """The ranks that differ along the same axes, those next to one another as one."""
        found: list[tuple[int, int]] = []
        for axis in along:
            stride, size = self.strides[axis], self.sizes[axis]
            if found and prod(found[-1]) == stride:
                stride, size = found[-1][0], found.pop()[1] * size
            found.append((stride, size))
        return Group(first=self.rank(group.first), axes=tuple(found))


def _shards(own: Recording, axes: Axes, axis: str) -> bool:
    """Whether weights are gathered along an axis."""
    return any(
        event.name == "all_gather" and axis in axes.of[event.group]
        for event in own.events
        if event.kind == "collective"
    )


def _operators(own: Recording, share: float) -> Iterator[Operator]:
    """Operators, those that only the optimizer runs on their share of the states."""
    phases: dict[int, set[str]] = {}
    for event in own.events:
        if event.kind == "kernel":
            phases.setdefault(event.operator, set()).add(event.phase)
    for number, operator in enumerate(own.operators):
        sharded = share != 1.0 and phases.get(number) == {"optimizer"}
        yield _of_share(operator, share) if sharded else operator


def _of_share(operator: Operator, share: float) -> Operator:
    return replace(
        operator,
        inputs=tuple(_tensor(one, share) for one in operator.inputs),
        outputs=tuple(_tensor(one, share) for one in operator.outputs),
        written=operator.written * share,
    )


def _tensor(one: Tensor, share: float) -> Tensor:
    """Single numbers (counters of steps, norms) are nobody's share."""
    if prod(one.shape) < 2:
        return one
    first, *rest = one.shape
    return replace(one, shape=(max(round(first * share), 1), *rest), elements=-1)


def _block(one: Allocation, share: float) -> Allocation:
    sharded = one.part in _SHARDED and one.bytes > 512
    return replace(one, bytes=max(round(one.bytes * share), 1)) if sharded else one
