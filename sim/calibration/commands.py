"""The commands that turn a machine into a profile: `sim calibrate ...`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sim.errors import InputError

if TYPE_CHECKING:
    from sim.reading import Reading

FILE = click.Path(path_type=Path)


@click.group()
def calibrate() -> None:
    """Measure this machine, or read what others measured."""


@calibrate.command("import")
@click.argument("files", nargs=-1, required=True, type=FILE)
@click.option("--out", type=FILE, help="Write the readings: .csv.")
def import_(files: tuple[Path, ...], out: Path | None) -> None:
    """Read nccl-tests output (text, JSON) and PyTorch profiler traces (.json, .json.gz).

    What stands before the line at which a file is cut short is kept.
    """
    from sim.calibration import imported

    found: list[Reading] = []
    try:
        for one in (one for file in files for one in imported.read(file)):
            found.append(one)  # noqa: PERF402 - what came before an error is kept
    except InputError as error:
        _keep(found, out)
        kept = f", the {len(found)} readings before it are kept" if found and out else ""
        raise InputError(error.where, error.what, error.remedy + kept) from None
    click.echo(imported.table(found))
    _keep(found, out)


def _keep(found: "list[Reading]", out: Path | None) -> None:
    from sim import reading

    if out is not None and found:
        reading.write(found, out)
        click.echo(f"wrote {out}", err=True)
