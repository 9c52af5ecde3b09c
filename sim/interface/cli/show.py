"""`sim show`: a model, topology, profile, collective algorithm or recording, as text or picture."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sim.config.errors import InputError
from sim.interface.cli import options
from sim.interface.cli.files import output, wrote
from sim.interface.document.terminal import text
from sim.interface.plots import SUFFIXES

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_RANKS = 8  # of an algorithm, where --gpus does not say how many


@click.command(
    epilog=options.examples(
        "sim show deepseek-v3",
        "sim show dgx-h100-ndr --gpus 64 --picture cluster.svg",
        "sim show ring --gpus 4",
    )
)
@click.argument("name", metavar="MODEL|TOPOLOGY|PROFILE|ALGORITHM|RECORDING")
@output("--picture", SUFFIXES, "Where to draw it")
@click.option("--gpus", type=options.COUNT, help="Show it with so many GPUs.")
def show(name: str, picture: Path | None, gpus: int | None) -> None:
    """Describe a model, topology, profile, algorithm or recording.

    A MODEL is a name, a TOML file or a Hugging Face config.json. A TOPOLOGY, the PROFILE of a
    device or fabric and an ALGORITHM (ring) can be drawn, too.
    """
    from sim.config import catalog
    from sim.interface.views.algorithm import is_algorithm
    from sim.interface.views.fabric import is_fabric
    from sim.interface.views.model import is_model
    from sim.interface.views.profile import is_profile
    from sim.jobs.recorded.file import is_script

    if is_script(name):
        _show_recording(name, picture, gpus)
    elif is_model(name):
        _show_model(name, picture, gpus)
    elif is_fabric(name):
        _show_fabric(name, picture)
    elif is_profile(name):
        _show_profile(name, picture)
    elif is_algorithm(name) and name not in catalog.names("topologies"):
        _show_algorithm(name, gpus or _RANKS, picture)
    else:
        _show_topology(name, gpus, picture)


def _show_model(name: str, picture: Path | None, gpus: int | None) -> None:
    from sim.interface.views.model import view
    from sim.model import reading

    _refuse("a model is shown as text", picture, gpus)
    click.echo(text(view(reading.load(name), options.title(name))))


def _show_recording(name: str, picture: Path | None, gpus: int | None) -> None:
    from sim.interface.views.recording import view
    from sim.jobs.recorded.file import read

    _refuse("a recording is shown as text", picture, gpus)
    click.echo(text(view(read(Path(name)))))


def _refuse(what: str, picture: Path | None, gpus: int | None) -> None:
    for option, given in (("--picture", picture), ("--gpus", gpus)):
        if given is not None:
            raise InputError(option, what, "leave it out")


def _show_algorithm(name: str, ranks: int, picture: Path | None) -> None:
    """Its collectives, and the rounds of the first of them."""
    from sim.interface.plots import collective
    from sim.interface.views.algorithm import schedules, view

    click.echo(text(view(name, ranks)))
    _draw(lambda: collective.figure(schedules(name, ranks)[0], title=name), picture)


def _show_fabric(name: str, picture: Path | None) -> None:
    from sim.interface.plots import fabric
    from sim.interface.views.fabric import view

    click.echo(text(view(name)))
    _draw(lambda: fabric.figure(name), picture)


def _show_profile(name: str, picture: Path | None) -> None:
    from sim.hardware.kernels.profile import load
    from sim.interface.plots import profile
    from sim.interface.views.profile import view

    shown, title = load(name), Path(name).stem
    click.echo(text(view(shown, title)))
    _draw(lambda: profile.figure(shown, title), picture)


def _show_topology(name: str, gpus: int | None, picture: Path | None) -> None:
    from sim.collectives.libraries import backend
    from sim.engine.machine import Machine
    from sim.hardware.cluster.topology import load
    from sim.interface.plots import topology
    from sim.interface.views.topology import view

    shown = load(name)
    shown = shown.with_gpus(gpus) if gpus else shown
    Machine(shown, backend.load(shown.backend))  # refuses what no library has
    click.echo(text(view(shown)))
    _draw(lambda: topology.figure(shown), picture)


def _draw(draw: Callable[[], "Figure"], path: Path | None) -> None:
    from sim.interface.plots.picture import save

    if path is not None:
        save(draw(), path)
        wrote(path)
