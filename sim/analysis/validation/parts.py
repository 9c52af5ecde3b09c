"""Predictions of parts of a step (kernels and collectives), compared with measured tables."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sim.analysis.calibration.fitting.kernel_tables import TimedRow, timed_rows
from sim.analysis.collectives.times import placed
from sim.collectives.schedule import GroupShape
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.grouped import grouped
from sim.engine.machine import Machine
from sim.hardware import device as devices
from sim.hardware.device import Device
from sim.hardware.kernels.shape_classes import LONG, summary
from sim.hardware.kernels.time import kernel_time
from sim.interface.formats import any_format
from sim.jobs.generation.attention import decode_time
from sim.jobs.traces.operation_times import OperationTime
from sim.model.kernels import Attention, Gemm, Kernel
from sim.results.answer import Answer, Inputs
from sim.scenario.settings import Settings, settings_of

_ROWS_OF_PRODUCT = ((64, "m to 64"), (256, "m to 256"), (1024, "m to 1024"))
_SMALL = 2.0**20  # bytes; smaller collectives have groups of their own


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRun:
    """A measured part and its prediction (s). Errors are summarised by `group`."""

    group: str
    part: str
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """predicted / measured - 1."""
        return self.predicted / self.measured - 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartValidation(Answer):
    """Measured kernels or collectives with a prediction of each. `short` is the number of kernels
    that last less than 20 us and are left out, since their time is mostly the launch."""

    view = "sim.interface.views.validation:parts"
    picture = "sim.interface.plots.validation:parts"
    derived = ("errors",)
    frame_rows = "rows"

    inputs: Inputs
    runs: tuple[PartRun, ...]
    short: int = 0

    @property
    def errors(self) -> list[dict[str, Any]]:
        """For each group: the number of runs, the median and the 95th percentile of absolute
        errors, and the mean error."""
        groups = grouped((run.group, run.error) for run in self.runs)
        return [
            {"group": group, "runs": len(errors), "median": middle, "p95": p95, "bias": bias}
            for group, errors in sorted(groups.items())
            for middle, p95, bias in [summary(errors)]
        ]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Every part with its prediction."""
        return [{**asdict(run), "error": run.error} for run in self.runs]


def validate_kernels(
    *tables: str | os.PathLike[str],
    device: str,
    only: Mapping[str, str] | None = None,
    precision: str = "fp16",
    held: bool = False,
) -> PartValidation:
    """Compare the kernels of tables (`kernel_tables` has their columns) with predictions from a
    device's file and its profile. `only` selects rows; rows that state no precision have
    `precision`. Products run at the full clock, as in a burst, unless they ran for minutes
    (`held`). Attention runs as the newest generation of the device's file. Raises `InputError`."""
    on = devices.load(device)
    on = on if held else on.in_bursts()
    timed = [row for table in tables for row in timed_rows(Path(table), only or {}, {}, precision)]
    runs = tuple(_kernel_runs(on, [row for row in timed if row.seconds > LONG]))
    if not runs:
        fault = "hold no kernel of more than 20 us whose sizes are stated"
        raise InputError(", ".join(map(str, tables)), fault, "take a table of larger kernels")
    return PartValidation(inputs=Inputs(device=on.name), runs=runs, short=len(timed) - len(runs))


def _kernel_runs(device: Device, timed: Sequence[TimedRow]) -> Iterator[PartRun]:
    for row in timed:
        offered = _attention(device, row.kernel)
        predicted = row.seconds_before(device) + _seconds(row.kernel, device, offered)
        group, part = _named(row.kernel)
        yield PartRun(group=group, part=part, measured=row.seconds, predicted=predicted)


def _seconds(kernel: Kernel, device: Device, offered: tuple[str, ...]) -> float:
    """Return the seconds of a kernel. Attention of a single query reads a cache."""
    if isinstance(kernel, Attention) and kernel.q == 1:
        return decode_time(kernel, device)
    return kernel_time(kernel, device, offered)


def _attention(device: Device, kernel: Kernel) -> tuple[str, ...]:
    """Return the generations of fused attention that run in a kernel's precision, newest first."""
    low = isinstance(kernel, Attention) and kernel.precision == "fp8"
    newest = reversed(list(device.attention.items()))
    return tuple(name for name, rates in newest if rates.fp8 or not low)


def _named(kernel: Kernel) -> tuple[str, str]:
    """Return the group of a kernel, and its sizes in words.

    >>> _named(Gemm(name="forward", m=512, n=4096, k=1024, precision="bf16"))
    ('products bf16, m to 1024', '512 x 4096 x 1024')
    """
    if isinstance(kernel, Gemm):
        rows = next((name for most, name in _ROWS_OF_PRODUCT if kernel.m <= most), "m above 1024")
        part = f"{kernel.batch} x " * (kernel.batch > 1) + f"{kernel.m} x {kernel.n} x {kernel.k}"
        experts = kernel.name == "experts"
        kind = "experts" if experts else "products"
        return f"{kind} {kernel.precision}" + f", {rows}" * (not experts), part
    if isinstance(kernel, Attention):
        if kernel.q == 1:
            return _decoding(kernel)
        seen = f"window {kernel.window}" if kernel.window else "causal" if kernel.causal else "full"
        heads = f"{kernel.heads} heads of {kernel.head} ({kernel.kv_heads} of keys)"
        return (
            f"attention {kernel.precision}, {seen.partition(' ')[0]}, heads of {kernel.head}",
            f"{kernel.batch} x {kernel.q} tokens, {heads}, {seen}",
        )
    return f"memory-bound, {kernel.name}", f"{kernel.bytes:,.0f} B"


def _decoding(kernel: Attention) -> tuple[str, str]:
    """Return the group of a kernel that reads a cache, and its sizes in words."""
    seen = f", window {kernel.window}" if kernel.window else ""
    heads = f"{kernel.heads} heads of {kernel.head} ({kernel.kv_heads} of keys)"
    return (
        f"decoding, cache in {kernel.precision}{', window' * bool(kernel.window)}",
        f"{kernel.batch} x {kernel.kv} tokens in the cache, {heads}{seen}",
    )


def validate_collectives(
    *tables: str | os.PathLike[str],
    topology: str,
    only: Mapping[str, str] | None = None,
    settings: Settings = (),
) -> PartValidation:
    """Compare the collectives of tables and logs (nccl-tests, profiler traces) with predictions for
    a topology. `only` selects rows of tables. Raises `InputError`, also if a group does not fit."""
    changes = settings_of(settings)
    on, _ = placed(topology, changes)
    readings = [r for table in tables for r in any_format.read(Path(table), only or {})]
    runs = tuple(_collective_run(on, reading) for reading in readings if reading.ranks > 1)
    if not runs:
        raise InputError(", ".join(map(str, tables)), "hold no collective", "take another table")
    inputs = Inputs(cluster=on.topology.name, device=on.topology.device.name, change=changes)
    return PartValidation(inputs=inputs, runs=runs)


def _collective_run(on: Machine, reading: OperationTime) -> PartRun:
    most = on.topology.gpus_per_node
    if -(-reading.ranks // reading.nodes) > most:
        fault = f"{reading.source} has {reading.ranks} ranks on {reading.nodes} nodes"
        remedy = f"nodes of {on.topology.name} hold {most}; choose rows (--only)"
        raise InputError("--on", fault, remedy)
    shape = GroupShape(ranks=reading.ranks, nodes=reading.nodes)
    call = on.call(reading.operation, reading.bytes, shape, reading.routed)
    places = f"{reading.ranks} GPUs" + f" of {reading.nodes} nodes" * (reading.nodes > 1)
    size = "above" if reading.bytes >= _SMALL else "below"
    return PartRun(
        group=f"{reading.operation}, {places}, {size} 1 MiB",
        part=f"{reading.operation} of {reading.bytes:,.0f} B among {places}",
        measured=reading.seconds,
        predicted=call.duration(on.backend.call_cost(call)),
    )
