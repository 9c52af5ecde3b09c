"""Steps of a trace, which the engine plays again as they were and with changes."""

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from sim.config import gate
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.engine import clock
from sim.engine.machine import Machine
from sim.engine.placed import placed
from sim.engine.record import Record
from sim.hardware.cluster import topology as topologies
from sim.hardware.cluster.topology import Topology
from sim.jobs.traces import chakra, reading
from sim.jobs.traces.account import account
from sim.jobs.traces.changes import Changes, Overlap
from sim.jobs.traces.devices import Move, devices_of
from sim.jobs.traces.program import kernel_ends, program
from sim.jobs.traces.rank_trace import RankTrace, aligned
from sim.results.answer import Answer, Inputs, said_of
from sim.scenario.setup import machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A step (s) as it was played: its time, and each rank's seconds by reason
    (`sim.jobs.traces.account`)."""

    step_time: float
    ranks: dict[int, dict[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay(Answer):
    """The replay of steps of one or several ranks; all seconds are seconds per step.

    `measured` is the trace's own step time, if it has one. For several steps it is the mean time
    from the end of one step to the end of the next, on the device. `replayed` is the step as the
    engine plays it; it agrees with `measured` as far as the trace is understood. `explained` is the
    step time without unexplained lags. Launches, streams, waits and the device's usual delays after
    them explain all other lags. `changed` is the step with the changes that were asked for. `moved`
    says how the seconds of all ranks' kernels moved to another device. `kernels` are seconds by
    name, the longest first.
    """

    view = "sim.interface.views.replay"
    picture = "sim.interface.plots.replay"
    frame_rows = "rows"
    frame_index = ("step", "rank")

    inputs: Inputs = field(default_factory=Inputs)
    files: tuple[str, ...]
    steps: int
    measured: float | None
    replayed: Played
    explained: float
    changed: Played | None
    moved: Move | None
    kernels: dict[str, float]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each rank, as it was and with changes: seconds of a step by reason."""
        played = {"as it was": self.replayed, "changed": self.changed}
        return [
            {"step": name, "rank": rank, **seconds}
            for name, step in played.items()
            if step is not None
            for rank, seconds in step.ranks.items()
        ]


def replayed(
    paths: Sequence[Path], changes: Changes | None = None, *, removed: str = "", device: str = "",
    source: str = "",
) -> Replay:  # fmt: skip
    """The replay of the traces of some ranks of one job, moved to a `device`. Raises `InputError`
    for files that hold no step, or not the same steps."""
    ranks = aligned(_read(paths))
    _check(ranks, paths)
    asked = changes or Changes()
    if device:
        asked = replace(asked, devices=devices_of(ranks, device, source))
    inputs = _inputs(asked, removed, ranks)
    others = aligned(_read(paths, removed)) if removed else ranks
    if any(rank.ends is None for rank in ranks):
        network = _network(asked)
        ranks, others, asked = network.of(ranks), network.of(others), replace(asked, machine=None)
    changed = None
    if removed or asked != Changes():
        changed = _played(asked.of(others))
    seconds: defaultdict[str, float] = defaultdict(float)
    for kernel in ranks[0].kernels[ranks[0].lead if _led(ranks) else 0 :]:
        seconds[kernel.name] += kernel.seconds / _periods(ranks)
    return Replay(
        inputs=inputs,
        files=tuple(path.name for path in paths),
        steps=ranks[0].steps,
        measured=_measured(ranks),
        replayed=_played(ranks),
        explained=_played([_without_lags(rank, _led(ranks)) for rank in ranks]).step_time,
        changed=changed,
        moved=_moved(asked, others),
        kernels=dict(sorted(seconds.items(), key=lambda item: -item[1])),
    )


def _moved(asked: Changes, ranks: Sequence[RankTrace]) -> Move | None:
    """How the kernels that count moved to another device, if they did."""
    if asked.devices is None:
        return None
    leads = [rank.lead if _led(ranks) else 0 for rank in ranks]
    return asked.devices.move(ranks, asked.carried(ranks), leads, _periods(ranks))


def _inputs(changes: Changes, removed: str, ranks: Sequence[RankTrace]) -> Inputs:
    """The changes, and the cluster to which they apply."""
    said = {"remove": removed} if removed else {}
    said |= said_of(replace(changes, machine=None, devices=None))
    device = changes.devices.target.name if changes.devices else ""
    if changes.machine is None:
        return Inputs(device=device, change=said)
    topology = changes.machine.topology
    calls = any(kernel.collective for rank in ranks for kernel in rank.kernels)
    notes = () if calls else ("the trace has no collective that another network could carry",)
    return Inputs(
        cluster=topology.name,
        device=device or topology.device.name,
        gpus=topology.gpus,
        change=said,
        notes=notes,
    )


def _read(paths: Sequence[Path], removed: str = "") -> list[RankTrace]:
    """Ranks of traces of PyTorch's profiler, or of Chakra by their suffix. Their world is the
    largest that any of the traces knows of."""
    ranks = [
        chakra.read(path, len(paths), removed)
        if path.suffix == chakra.SUFFIX
        else reading.read(path, removed)
        for path in paths
    ]
    world = max((_world(rank) for rank in ranks), default=1)
    return [replace(rank, world=world) for rank in ranks]


def _world(rank: RankTrace) -> int:
    """How many ranks the job had, as far as a trace and its collectives tell."""
    calls = (kernel.collective for kernel in rank.kernels if kernel.collective)
    numbers = (number for call in calls for number in (call.ranks, *(1 + n for n in call.members)))
    return max(rank.world, *numbers, 1)


def _network(asked: Changes) -> Changes:
    """The change that puts communications on a network, for traces that do not say how long these
    took. Raises `InputError` if no network is named."""
    if asked.machine is None:
        fault = "these traces do not say how long communications take"
        raise InputError("traces", fault, "name the cluster to play them on: --topology NAME")
    return Changes(machine=asked.machine)


def _measured(ranks: Sequence[RankTrace]) -> float | None:
    """The measured time between the ends of a job's steps; None if the traces lack it."""
    ends = [rank.ends for rank in ranks if rank.ends is not None]
    if not ends:
        return None
    begin = max(first for first, _ in ends) if _led(ranks) else 0.0
    return (max(last for _, last in ends) - begin) / _periods(ranks)


def _led(ranks: Sequence[RankTrace]) -> bool:
    """Whether a first step, which does not count, comes before the steps that count."""
    return all(rank.lead for rank in ranks)


def _periods(ranks: Sequence[RankTrace]) -> int:
    """The number of steps that count."""
    return max(ranks[0].steps - _led(ranks), 1)


def _check(ranks: Sequence[RankTrace], paths: Sequence[Path]) -> None:
    numbers = [rank.rank for rank in ranks]
    for number, (rank, path) in enumerate(zip(ranks, paths, strict=True)):
        if rank.rank in numbers[:number]:
            raise InputError(
                str(path), f"is a second trace of rank {rank.rank}", "give each rank once"
            )
        if rank.steps != ranks[0].steps:
            fault = f"holds {rank.steps} steps, but {paths[0].name} holds {ranks[0].steps}"
            raise InputError(str(path), fault, "give traces of the same steps")


def _played(ranks: Sequence[RankTrace]) -> Played:
    try:
        written = placed(program(ranks), [rank.rank for rank in ranks])
        record: Record = clock.play(written)
    except InputError as error:
        remedy = "give traces of the same steps of one job"
        raise InputError("traces", error.what, remedy) from None
    steps, (begin, end) = _periods(ranks), _counted(record, ranks)
    accounts = {
        rank.rank: {
            why: seconds / steps for why, seconds in account(record, number, begin, end).items()
        }
        for number, rank in enumerate(ranks)
    }
    return Played(step_time=(end - begin) / steps, ranks=accounts)


def _counted(record: Record, ranks: Sequence[RankTrace]) -> tuple[float, float]:
    """When the devices ended the job's first step, and when they ended its last step (s)."""
    if not _led(ranks):
        return 0.0, record.end
    firsts, lasts = [], []
    for number, rank in enumerate(ranks):
        ends = kernel_ends(record, number, rank)
        firsts.append(max(ends[: rank.lead]))
        lasts.append(max(ends))
    return max(firsts), max(lasts)


def _without_lags(rank: RankTrace, led: bool) -> RankTrace:
    """The rank with only the usual lags; kernels of a first step that does not count keep their
    lags."""
    lead = rank.lead if led else 0
    others = (replace(kernel, lag=kernel.usual, tail=0.0) for kernel in rank.kernels[lead:])
    return replace(rank, kernels=(*rank.kernels[:lead], *others))


def replay(
    *traces: str | os.PathLike[str],
    kernels: Mapping[str, float] | None = None,
    host: float = 1.0,
    topology: str | Topology | None = None,
    gpus: int | None = None,
    device: str = "",
    source: str = "",
    overlap: Overlap = "as-is",
    remove: str = "",
) -> Replay:
    """Play the steps of traces of PyTorch's profiler, one per rank, as they were and with changes.

    `kernels` are factors on the seconds of kernels whose name contains the key, `host` is a factor
    on the host's seconds. Collectives take as long as on `gpus` GPUs of a `topology`. All other
    kernels move to a `device`, from the device that the traces name or the `source`. With `overlap`
    "none" no collective runs beside a kernel; with "full" no kernel waits for a collective.
    Operators whose name contains `remove` are left out. Raises `InputError`.
    """
    for where, factor in [
        ("--host", host),
        *((f"--kernels {k}", v) for k, v in (kernels or {}).items()),
    ]:
        if (fault := gate.fault_of(factor)) or factor <= 0:
            raise InputError(where, f"{factor} {fault or 'is not positive'}", "write a factor")
    if gpus is not None and topology is None:
        raise InputError("--gpus", "changes no collective by itself", "name the --topology too")
    if not traces:
        raise InputError("sim.replay", "no traces", "give the trace of at least one rank")
    changes = Changes(
        kernels=tuple((kernels or {}).items()),
        host=host,
        machine=None if topology is None else _machine(topology, gpus),
        overlap=overlap,
    )
    if source and not device:
        raise InputError("--from", "moves nothing by itself", "name the --device to move to")
    files = [Path(path) for path in traces]
    return replayed(files, changes, removed=remove, device=device, source=source)


def _machine(given: str | Topology, gpus: int | None) -> Machine:
    cluster = topologies.load(given, where="--topology") if isinstance(given, str) else given
    return machine(cluster.with_gpus(gpus or cluster.gpus), None, (), cluster.name)
