"""Which changes could help a recorded step? Edits of its script, and moves to other numbers of
GPUs, batches and data-parallel shardings."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product

from sim.config.errors import InputError
from sim.config.plugins import modules
from sim.jobs.recorded.axes import DATA_AXIS
from sim.jobs.recorded.edits.batch import batch_of, with_batch
from sim.jobs.recorded.edits.edit import Edit
from sim.jobs.recorded.edits.sharding import shard_calls, sharded
from sim.jobs.recorded.setup import Recorded, from_scenario
from sim.results.by_line import Suggestion

_WORLDS = (0.25, 0.5, 1.0, 2.0, 4.0)  # factors of the number of GPUs, unless it is set
_BATCHES = (0.5, 1.0, 2.0, 4.0)  # factors of the recorded batch


def advice(setup: Recorded) -> Iterator[Suggestion]:
    """Yield the edits of all modules of `edits`."""
    for module in modules("sim.jobs.recorded.edits").values():
        if hasattr(module, "edits"):
            for edit in module.edits(setup):
                yield Suggestion(
                    line=edit.line,
                    at=edit.at,
                    change=edit.change,
                    why=edit.why,
                    samples=edit.samples,
                    made=partial(_edited, edit),
                )


def _edited(edit: Edit, setup: Recorded) -> Recorded:
    """A setup with an edit applied to all its recordings."""
    recordings = tuple(edit.made(recording, axes) for recording, axes in setup.stages)
    return from_scenario(replace(setup.scenario, record=recordings))


def moves(setup: Recorded) -> Iterator[Suggestion]:
    """Yield all moves of a setup; the first move leaves the setup as it is."""
    now = setup.machine.topology.gpus
    worlds = [now] if setup.scenario.gpus else [round(now * times) for times in _WORLDS]
    choices = product(sorted(worlds, key=lambda gpus: gpus != now), _shards(setup), _batches(setup))
    for gpus, shard, times in choices:
        change, samples = _told(setup, gpus, shard, times), times * gpus / now
        made = partial(_moved, gpus=gpus, shard=shard, times=times)
        yield Suggestion(line="", change=change, why="", samples=samples, made=made)
    if _samples(setup) is None:  # this move is offered all the same: its error gives the reason
        change, times = f"{now:,} GPUs, other batches", _BATCHES[-1]
        made = partial(_moved, gpus=now, shard=0, times=times)
        yield Suggestion(line="", change=change, why="", samples=times, made=made)


def _samples(setup: Recorded) -> list[int] | None:
    """The samples of a microbatch of each stage; None if shapes do not show them."""
    try:
        return [batch_of(recording, axes).samples for recording, axes in setup.stages]
    except InputError:
        return None


def _batches(setup: Recorded) -> list[float]:
    """The factors by which the batch can be multiplied, 1 first."""
    samples = _samples(setup)
    if samples is None:
        return [1.0]
    whole = [times for times in _BATCHES if all(n * times == int(n * times) for n in samples)]
    return sorted(whole, key=lambda times: times != 1.0)


def _shards(setup: Recorded) -> list[int]:
    """The sizes of groups that shard states: 0 (as recorded), and perhaps the size of a node."""
    (recording, axes), size = setup.stages[0], setup.machine.topology.gpus_per_node
    wide = shard_calls(recording, axes) and axes.mesh.get(DATA_AXIS, 1) > size
    return [0, size] if wide else [0]


def _told(setup: Recorded, gpus: int, shard: int, times: float) -> str:
    """A move in a few words."""
    recording, axes = setup.stages[0]
    batch = "the batch of the script"
    if times != 1.0:
        batch = f"{batch_of(recording, axes).samples * times:,.0f} samples a microbatch"
    shards = f"sharded among {shard}" if shard else "sharded as in the script"
    if not shard_calls(recording, axes):
        shards = "sharding left as it is"
    return f"{gpus:,} GPUs, {batch}, {shards}"


def _moved(setup: Recorded, gpus: int, shard: int, times: float) -> Recorded:
    """A setup on `gpus` GPUs, with states sharded among `shard` ranks (0: as recorded), and with
    `times` times the batch."""
    moved = from_scenario(replace(setup.scenario, gpus=gpus))
    recordings = []
    for recording, axes in moved.stages:
        if times != 1.0:
            recording = with_batch(recording, axes, times)
        recordings.append(sharded(recording, axes, shard) if shard else recording)
    return from_scenario(replace(setup.scenario, record=tuple(recordings), gpus=gpus))
