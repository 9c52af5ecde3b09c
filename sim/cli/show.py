"""`sim show`: what a topology or a profile holds, as text and as a picture."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sim.cli.files import output, wrote
from sim.plots import SUFFIXES

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@click.command()
@click.argument("name", metavar="TOPOLOGY|PROFILE")
@output("--picture", SUFFIXES, "Where to draw it")
@click.option("--gpus", type=click.IntRange(min=1), help="Show it with so many GPUs.")
def show(name: str, picture: Path | None, gpus: int | None) -> None:
    """Describe and draw a TOPOLOGY, or the PROFILE of a device or of a fabric."""
    from sim.calibration.fitting.fabric_text import is_fabric
    from sim.results.profile import is_profile

    if is_fabric(name):
        _show_fabric(name, picture)
    elif is_profile(name):
        _show_profile(name, picture)
    else:
        _show_topology(name, gpus, picture)


def _show_fabric(name: str, picture: Path | None) -> None:
    from sim.calibration.fitting.fabric_text import describe
    from sim.plots import fabric

    click.echo(describe(name))
    _draw(fabric.figure(name), picture, Path(name).stem)


def _show_profile(name: str, picture: Path | None) -> None:
    from sim.hardware.kernels.profile import load
    from sim.plots import profile
    from sim.results.profile import describe

    shown, title = load(name), Path(name).stem
    click.echo(describe(shown, title))
    _draw(profile.figure(shown, title), picture, title)


def _show_topology(name: str, gpus: int | None, picture: Path | None) -> None:
    from sim.hardware.cluster.topology import load
    from sim.plots import topology
    from sim.results.topology import describe

    shown = load(name)
    shown = shown.with_gpus(gpus) if gpus else shown
    click.echo(describe(shown))
    _draw(topology.figure(shown), picture, shown.name)


def _draw(figure: "Figure", path: Path | None, title: str) -> None:
    from sim.plots.picture import save

    path = path or Path(f"{title}.png")
    save(figure, path)
    wrote(path)
