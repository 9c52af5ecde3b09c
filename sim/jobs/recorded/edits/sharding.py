"""An edit that shards weights, gradients and optimizer states among fewer ranks (HSDP)."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from sim.config.errors import InputError
from sim.jobs.recorded.axes import DATA_AXIS, Axes
from sim.jobs.recorded.edits.edit import (
    Edit,
    data_calls,
    kernel_events,
    line_of,
    place_of,
    rewritten,
)
from sim.jobs.recorded.recording import Event, Group, Recording
from sim.jobs.recorded.scaled import sharded_states, with_share
from sim.jobs.recorded.setup import Recorded


def edits(setup: Recorded) -> Iterator[Edit]:
    """Yield the edit that shards states within a node only."""
    recording, axes = setup.stages[0]
    calls = shard_calls(recording, axes)
    ranks, size = axes.mesh.get(DATA_AXIS, 1), setup.machine.topology.gpus_per_node
    if calls and ranks > size and ranks % size == 0:
        yield Edit(
            change=f'fully_shard(..., mesh=init_device_mesh("cuda", ({ranks // size}, {size}), '
            'mesh_dim_names=("replicate", "shard")))',
            why="weights are gathered over the network; shards within a node need only its links",
            line=line_of(recording, recording.events[calls[0]]),
            at=place_of(setup, "wrapper"),
            made=partial(sharded, size=size),
        )


def shard_calls(recording: Recording, axes: Axes) -> list[int]:
    """The collectives that gather shards of weights and scatter sums of gradients."""
    if "parameters" not in sharded_states(recording, axes, DATA_AXIS):
        return []
    calls = data_calls(recording, axes, "all_gather", "reduce_scatter")
    return [n for n in calls if axes.of[recording.events[n].group] == (DATA_AXIS,)]


def sharded(recording: Recording, axes: Axes, size: int) -> Recording:
    """The recording with states sharded among `size` neighbours along the data-parallel axis. Each
    rank then sums its shard of the gradients with the ranks that hold the same shard elsewhere.
    Raises `InputError` if nothing is sharded, or if `size` does not divide the ranks."""
    calls = shard_calls(recording, axes)
    ranks, stride = axes.mesh.get(DATA_AXIS, 1), axes.strides.get(DATA_AXIS, 1)
    if not calls:
        fault = "shards nothing along a data-parallel axis"
        raise InputError(recording.script, fault, "capture it with fully_shard")
    if ranks % size:
        fault = f"{ranks} ranks are no multiple of {size}"
        raise InputError(recording.script, fault, f"shard among a divisor of {ranks}")
    place = recording.rank // stride % ranks
    inner = Group(first=recording.rank - place % size * stride, axes=((stride, size),))
    outer = Group(
        first=recording.rank - place // size * size * stride,
        axes=((stride * size, ranks // size),),
    )
    begin = len(recording.groups)
    marks = iter(range(1 + max(event.mark for event in recording.events), 1 << 62))
    aside = 1 + max(event.stream for event in recording.events)  # torch sums on a stream of its own
    new: dict[int, tuple[Event, ...]] = {}
    sums: list[int] = []
    for number in calls:
        event = replace(recording.events[number], group=begin)
        new[number] = (event,)
        if event.name == "reduce_scatter" and size < ranks:
            sums.append(next(marks))
            wait = Event(kind="done", stream=aside, phase=event.phase, mark=event.mark)
            total = replace(
                event, name="all_reduce", group=begin + 1, stream=aside, mark=sums[-1],
                bytes=event.bytes / size, blocking=False,
            )  # fmt: skip
            new[number] = (event, wait, total)
    update = next((n for n, e, _ in kernel_events(recording) if e.phase == "optimizer"), None)
    if update is not None:
        event = recording.events[update]
        new[update] = (replace(event, reads=(*event.reads, *sums)),)
    changed = replace(recording, groups=(*recording.groups, inner, outer))
    return with_share(rewritten(changed, new), ranks / size)
