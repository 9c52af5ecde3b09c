"""Sharding: weights, gradients and the optimizer's states divided among fewer ranks (HSDP)."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from sim.config.errors import InputError
from sim.jobs.recorded.axes import DATA_AXIS, Axes
from sim.jobs.recorded.edits.edit import Edit, line_of, rewritten
from sim.jobs.recorded.recording import Event, Group, Recording
from sim.jobs.recorded.scaled import with_share
from sim.jobs.recorded.setup import Recorded

_SHARDS = ("all_gather", "reduce_scatter")


def edits(setup: Recorded) -> Iterator[Edit]:
    """States sharded within a node only."""
    recording, axes = setup.stages[0]
    calls = shard_calls(recording, axes)
    ranks, size = axes.mesh.get(DATA_AXIS, 1), setup.machine.topology.gpus_per_node
    if calls and ranks > size and ranks % size == 0:
        yield Edit(
            change=f'fully_shard(..., mesh=init_device_mesh("cuda", ({ranks // size}, {size}), '
            'mesh_dim_names=("replicate", "shard")))',
            why="weights are gathered over the network; within a node they are gathered over links",
            line=line_of(recording, recording.events[calls[0]]),
            made=partial(sharded, size=size),
        )


def shard_calls(recording: Recording, axes: Axes) -> list[int]:
    """The collectives that gather shards of weights and scatter sums of gradients."""
    return [
        number
        for number, event in enumerate(recording.events)
        if event.kind == "collective"
        and event.name in _SHARDS
        and axes.of[event.group] == (DATA_AXIS,)
    ]


def sharded(recording: Recording, axes: Axes, size: int) -> Recording:
    """States are divided among so many neighbours along the data-parallel axis, each of which then
    sums its shard of the gradients with its equals elsewhere. Raises `InputError`."""
    calls = shard_calls(recording, axes)
    ranks, stride = axes.mesh.get(DATA_AXIS, 1), axes.strides.get(DATA_AXIS, 1)
    if not calls:
        fault = "shards nothing along a data-parallel axis"
        raise InputError(recording.script, fault, "capture it with fully_shard")
    if ranks % size:
        fault = f"{ranks} ranks are no multiple of {size}"
        raise InputError(recording.script, fault, "shard among a divisor of them")
    place = recording.rank // stride % ranks
    inner = Group(first=recording.rank - place % size * stride, axes=((stride, size),))
    outer = Group(
        first=recording.rank - place // size * size * stride,
        axes=((stride * size, ranks // size),),
    )
    begin = len(recording.groups)
    marks = iter(range(1 + max(e.mark for e in recording.events), 1 << 62))
    new: dict[int, tuple[Event, ...]] = {}
    sums: dict[int, Event] = {}  # behind each scatter that is waited for, by its mark
    for number in calls:
        event = recording.events[number]
        own = replace(event, group=begin)
        new[number] = (own,)
        if event.name == "reduce_scatter" and size < ranks:
            total = replace(own, name="all_reduce", group=begin + 1, mark=next(marks))
            total = replace(total, bytes=event.bytes / size)
            if event.blocking:
                new[number] = (own, total)
            else:
                sums[event.mark] = total
    for number, event in enumerate(recording.events):
        if event.kind == "done" and event.mark in sums:
            total = sums.pop(event.mark)
            wait = replace(event, mark=total.mark)
            new[number] = (event, replace(total, stream=event.stream), wait)
    changed = replace(recording, groups=(*recording.groups, inner, outer))
    return with_share(rewritten(changed, new), ranks / size)
