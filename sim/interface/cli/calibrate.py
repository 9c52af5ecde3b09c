"""The commands that turn a machine into a profile: `sim calibrate ...`."""

import math
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from sim.config.errors import InputError
from sim.config.units import quantity_of
from sim.interface.cli import options
from sim.interface.cli.files import STOPPED, output, wrote

if TYPE_CHECKING:
    from sim.hardware.kernels.profile import Profile
    from sim.jobs.traces.operation_times import OperationTime

SMALLEST = 8  # bytes; the first size of every suite


@click.group()
def calibrate() -> None:
    """Measure this machine, or read measurements of others."""


@calibrate.command()
@click.option("--device", type=click.Choice(["cuda", "cpu"]), default="cuda", show_default=True)
@click.option("--suite", type=click.Choice(["quick", "full"]), default="quick", show_default=True)
@click.option(
    "--processes", type=click.IntRange(1, 64), default=1, show_default=True,
    help="Number of processes that measure at once; on CPUs they share the cores.",
)  # fmt: skip
@click.option(
    "--as", "name", default="", metavar="NAME", help="The device's file, if the guess is wrong."
)
@click.option(
    "--minutes", type=click.FloatRange(min=0.0), default=math.inf,
    help="Start no kernel after so many minutes; the same command goes on from there.",
)  # fmt: skip
@output("--out", (".toml",), "Write the profile, and its table beside it", required=True)
def kernels(
    device: Literal["cuda", "cpu"],
    suite: Literal["quick", "full"],
    processes: int,
    name: str,
    minutes: float,
    out: Path,
) -> None:
    """Time this machine's kernels and write the profile that predictions use.

    Ctrl-C keeps the measurements; the same command goes on from there.
    """
    from sim.analysis.calibration import kernel_profile

    try:
        profile = kernel_profile.calibrate(
            device, suite, out, processes=processes, name=name, minutes=minutes,
            note=lambda message: click.echo(message, err=True),
        )  # fmt: skip
    except KeyboardInterrupt:
        part = kernel_profile.part_of(out)
        click.echo(f"stopped: {part} keeps the times so far; the same command goes on", err=True)
        raise SystemExit(STOPPED) from None
    if profile is not None:
        wrote(out)
        _residuals(profile)
    elif (part := kernel_profile.part_of(out)).exists():
        click.echo(f"{part} keeps the times so far; the same command goes on", err=True)


@calibrate.command("import")
@click.argument("files", nargs=-1, required=True, type=options.INPUT_FILE)
@output("--out", (".csv", ".toml"), "Write the readings, or a profile")
@click.option("--topology", metavar="NAME", help="The measured cluster; NCCL's profile needs it.")
@click.option("--as", "device", default="", metavar="NAME", help="Read kernels of this device.")
@click.option(
    "--rows", multiple=True, metavar="COLUMN[!]=VALUE",
    help="Read only rows of a table whose COLUMN is VALUE (with !=, is another value).",
)  # fmt: skip
@click.option("--kind", multiple=True, metavar="OP=KIND", help="The kind of kernel of operator OP.")
@click.option(
    "--precision", default="fp16", show_default=True, help="Precision of products that state none."
)
@click.option("--note", multiple=True, metavar="KEY=TEXT", help="Text for the profile: source=...")
def import_(
    files: tuple[Path, ...],
    out: Path | None,
    topology: str | None,
    device: str,
    rows: tuple[str, ...],
    kind: tuple[str, ...],
    precision: str,
    note: tuple[str, ...],
) -> None:
    """Read nccl-tests output (text, JSON), PyTorch profiler traces (.json, .json.gz) and tables of
    collectives (.csv). With --as, read kernels instead: tables (.csv), or the matrix products of
    traces and the host's time for each operator. With --as and --out NAME.csv, traces become tables
    of kernels, of the host and of collectives. `sim validate` reads these tables.

    If a line cannot be read, the readings before that line are kept.
    """
    from sim.analysis.calibration.fitting.fabric_profile import fabric_of
    from sim.analysis.calibration.fitting.measured_collectives import jitter
    from sim.interface.document.terminal import text
    from sim.interface.formats import any_format
    from sim.interface.views import fabric as shown

    origin = {**options.pairs("--note", note), "files": ", ".join(file.name for file in files)}
    if device:
        if out is not None and out.suffix == ".csv":
            return _tables_of(files, out, device)
        kinds = options.pairs("--kind", kind)
        return kernels_of(
            files, out, device, options.pairs("--rows", rows), kinds, precision, origin
        )
    if topology is not None:
        fabric_of(topology)

    readings: list[OperationTime] = []
    wanted = options.pairs("--rows", rows)
    try:
        for reading in chain.from_iterable(any_format.read(file, wanted) for file in files):
            readings.append(reading)  # noqa: PERF402 - what came before an error is kept
    except InputError as error:
        _keep(readings, out and out.with_suffix(".csv"))
        kept = f", the {len(readings)} readings before it are kept" if readings and out else ""
        raise InputError(error.where, error.what, error.remedy + kept) from None
    click.echo(text(shown.readings(readings)))
    if scatter := jitter(readings):
        click.echo(f"\n{scatter}")
    if out is None or out.suffix != ".toml":
        return _keep(readings, out)
    _fitted(readings, origin, out, topology)


def _tables_of(files: tuple[Path, ...], out: Path, device: str) -> None:
    """Write the kernel, host and collective times in traces of a device as tables, and print a
    summary."""
    from sim.analysis.calibration import evidence
    from sim.interface.document.terminal import text
    from sim.interface.views import fabric as shown

    found = evidence.evidence_of(files, device)
    click.echo(text(shown.evidence(found)))
    for path in evidence.write(found, out):
        wrote(path)


def kernels_of(
    files: tuple[Path, ...],
    out: Path | None,
    device: str,
    rows: Mapping[str, str],
    kinds: Mapping[str, str],
    precision: str,
    origin: Mapping[str, str],
    *,
    aside: bool = False,
) -> None:
    """Write the profile of a device from kernel times that others measured, and print its errors.
    With `aside`, the errors go to standard error, because standard output then has another
    answer."""
    from sim.analysis.calibration.fitting import kernel_tables, profile_file
    from sim.analysis.calibration.fitting.device_profile import profiled
    from sim.hardware.device import load

    generation = load(device, where="--as").generation
    if out is None or out.suffix != ".toml":
        raise InputError("--out", "kernels become a profile", "name a file: --out NAME.toml")
    measured, host = kernel_tables.read(files, rows, kinds, precision, generation)
    table, provenance = out.with_suffix(".csv").name, {**origin, "samples": len(measured)}
    profile = profiled(device, measured, table=table, provenance=provenance, operators=host)
    profile_file.write(profile, out)
    _residuals(profile, aside=aside)
    wrote(out)


def _residuals(profile: "Profile", *, aside: bool = False) -> None:
    for kind in profile.origin.residuals:
        errors = f"median {kind.median:.1%}, 95th percentile {kind.p95:.1%}"
        errors += f", bias {kind.bias:+.1%}"
        click.echo(f"{kind.kind:10} {kind.shapes:4} kept out of the fit: {errors}", err=aside)
    for doubt in profile.doubts:
        click.echo(f"warning: {doubt} Measure again on an idle one.", err=True)


def _fitted(
    readings: "list[OperationTime]", origin: dict[str, str], out: Path, topology: str | None
) -> None:
    """Write NCCL's profile, fitted to readings that others measured on a cluster."""
    from sim.analysis.calibration.fitting import fabric_profile
    from sim.analysis.calibration.timing.provenance import command
    from sim.interface.document.terminal import text
    from sim.interface.views import fabric

    profile = fabric_profile.profiled("nccl", readings, out, topology, {**command(), **origin})
    click.echo(f"\n{text(fabric.judged(profile.residuals))}")
    wrote(out)


@calibrate.command()
@click.option("--backend", type=click.Choice(["gloo", "nccl"]), default="gloo", show_default=True)
@click.option("--ranks", type=click.IntRange(min=1), default=2, show_default=True)
@click.option("--suite", type=click.Choice(["quick", "full"]), default="quick", show_default=True)
@click.option("--largest", metavar="SIZE", help="The largest size, such as 64 MiB.")
@click.option("--topology", metavar="NAME", help="The measured cluster; NCCL's fit needs it.")
@click.option(
    "--minutes", type=click.FloatRange(min=0.0), default=math.inf,
    help="Start no collective after so many minutes; the same command goes on from there.",
)  # fmt: skip
@output(
    "--out", (".csv", ".toml"), required=True,
    help="Write or continue the readings, or a profile with its readings beside it",
)  # fmt: skip
def collectives(
    backend: Literal["gloo", "nccl"],
    ranks: int,
    suite: Literal["quick", "full"],
    largest: str | None,
    topology: str | None,
    minutes: float,
    out: Path,
) -> None:
    """Time collectives among ranks that this command, or torchrun, starts.

    Ctrl-C keeps the measurements; a second call goes on from there.
    """
    from sim.analysis.calibration.timing.collectives import time_collectives
    from sim.hardware.cluster import topology as topologies

    table = out.with_suffix(".csv")
    if topology is not None:
        topologies.load(topology, where="--topology")
    try:
        readings = time_collectives(backend, ranks, suite, table, _bytes(largest), minutes)
    except KeyboardInterrupt:
        click.echo(f"stopped: {table} keeps the times so far; the same command goes on", err=True)
        raise SystemExit(STOPPED) from None
    except InputError as error:
        kept = f"{table} keeps what was measured" if error.where.startswith("rank ") else ""
        remedy = ", ".join(filter(None, (error.remedy, kept)))
        raise InputError(error.where, error.what, remedy) from None
    if readings is None:
        click.echo(f"{table} keeps the times so far; the same command goes on", err=True)
    elif readings:
        _show(readings, backend, ranks, out, topology)


def _show(
    readings: "list[OperationTime]",
    backend: Literal["gloo", "nccl"],
    ranks: int,
    out: Path,
    topology: str | None,
) -> None:
    """Print the readings as a table, or fit a profile to them, write it and print its errors."""
    from sim.analysis.calibration.fitting import fabric_profile
    from sim.analysis.calibration.timing import process_group
    from sim.analysis.calibration.timing.provenance import provenance
    from sim.interface.document.terminal import text
    from sim.interface.views import fabric
    from sim.jobs.traces.operation_times import merged

    if out.suffix != ".toml":
        return click.echo(text(fabric.readings(merged(readings), most=len(readings))))
    origin = provenance("cuda" if backend == "nccl" else "cpu", processes=ranks)
    if process_group.launched() is None:
        origin |= fabric_profile.shared_devices(backend, ranks, _gpus())
    profile = fabric_profile.profiled(backend, readings, out, topology, origin)
    click.echo(text(fabric.judged(profile.residuals)))
    wrote(out)


def _gpus() -> int:
    import torch

    return int(torch.cuda.device_count())


def _bytes(text: str | None) -> float:
    size = quantity_of("--largest", text, "B") if text else math.inf
    if size < SMALLEST:
        remedy = f"sizes begin at {SMALLEST} B; take more"
        raise InputError("--largest", f"{text!r} leaves nothing to time", remedy)
    return size


def _keep(readings: "list[OperationTime]", out: Path | None) -> None:
    from sim.jobs.traces.operation_times import write

    if out is not None and readings:
        write(readings, out)
        wrote(out)
