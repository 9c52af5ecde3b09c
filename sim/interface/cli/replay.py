"""`sim replay` plays traces of real steps again, as they were or changed."""

from pathlib import Path
from typing import Any

import click

from sim.config.errors import InputError
from sim.interface.cli import options
from sim.interface.cli.calibrate import kernels_of
from sim.interface.cli.files import Form, answers, output, wrote


@click.command(
    epilog=options.examples(
        "sim replay rank-0.json rank-1.json --picture waits.png",
        "sim replay rank-0.json --kernels gemm=0.5 --topology dgx-h100-ndr --gpus 1024",
        "sim replay rank-0.json --device mi300x",
    )
)
@click.argument("traces", nargs=-1, required=True, type=options.INPUT_FILE)
@click.option(
    "--kernels", multiple=True, metavar="NAME=FACTOR",
    help="Kernels with NAME in their names take FACTOR times as long: gemm=0.5.",
)  # fmt: skip
@click.option("--host", metavar="FACTOR", help="The host takes FACTOR times as long.")
@click.option("--topology", metavar="NAME", help="Time collectives on this cluster.")
@click.option("--gpus", type=options.COUNT, help="GPUs of --topology in use.")
@click.option("--device", default="", metavar="NAME", help="Time kernels on this device.")
@click.option(
    "--from", "source", default="", metavar="NAME", help="Device of a trace that names none."
)
@click.option(
    "--overlap", type=click.Choice(["as-is", "none", "full"]), default="as-is",
    help="none: no collective runs beside kernels; full: no kernel waits for a collective.",
)  # fmt: skip
@click.option("--remove", default="", metavar="NAME", help="Leave out operators of this name.")
@output("--readings", (".csv",), "Write times of kernels and collectives for sim calibrate")
@output("--profile", (".toml",), "Fit a device's profile to the products of the traces")
@click.option("--as", "measured", default="", metavar="NAME", help="The device for --profile.")
@answers()
def replay(
    traces: tuple[Path, ...],
    kernels: tuple[str, ...],
    host: str | None,
    readings: Path | None,
    profile: Path | None,
    measured: str,
    form: Form,
    **changes: Any,
) -> None:
    """Play the steps of TRACES again, as they were and changed.

    Give a trace for each rank, of PyTorch's profiler (.json, .json.gz) or of Chakra (.et). The
    answer says what the step waits for, and how long it would take with the changes.
    """
    from sim.jobs.traces.replay import replay as played

    if bool(measured) != (profile is not None):
        fault, remedy = "go together", "write both: --profile mine.toml --as h100-80gb-sxm"
        raise InputError("--profile and --as", fault, remedy)
    factors: dict[str, float] = {}
    for text in kernels:
        name, factor = _factor(text)
        factors[name] = factors.get(name, 1.0) * factor
    answer = played(
        *traces,
        kernels=factors,
        host=1.0 if host is None else options.factor_of("--host", host),
        **changes,
    )
    if readings is not None:
        _write(traces, readings)
    if profile is not None:
        origin = {"files": ", ".join(trace.name for trace in traces)}
        kernels_of(traces, profile, measured, {}, {}, "fp16", origin, aside=True)
    form.show(answer)


def _write(traces: tuple[Path, ...], out: Path) -> None:
    """Write the measured times in these traces as a table, which `sim calibrate` reads."""
    from sim.jobs.traces import operation_times
    from sim.jobs.traces.kineto import read

    operation_times.write([time for trace in traces for time in read(trace)], out)
    wrote(out)


def _factor(text: str) -> tuple[str, float]:
    name, _, number = text.rpartition("=")
    if not name:
        raise InputError("--kernels", f"{text!r} is not NAME=FACTOR", "write gemm=0.5")
    return name, options.factor_of(f"--kernels {name}", number)
