"""`sim show` describes a model, topology, profile, collective algorithm, recording or scenario as
text or picture."""

from pathlib import Path

import click

from sim.interface.cli import options
from sim.interface.cli.files import output, wrote
from sim.interface.plots import SUFFIXES


@click.command(
    epilog=options.examples(
        "sim show deepseek-v3",
        "sim show dgx-h100-ndr --gpus 64 --picture cluster.svg",
        "sim show ring --gpus 4",
        "sim show ps-async",
    )
)
@click.argument("name", metavar="MODEL|TOPOLOGY|PROFILE|ALGORITHM|RECORDING|SCENARIO")
@output("--picture", SUFFIXES, "Draw it")
@click.option("--gpus", type=options.COUNT, help="Show it with N GPUs or ranks.")
def show(name: str, picture: Path | None, gpus: int | None) -> None:
    """Describe a model, cluster, profile, algorithm or scenario.

    A MODEL is a name, a TOML file or a Hugging Face config.json. A TOPOLOGY, the PROFILE of a
    device or fabric and an ALGORITHM (ring) can be drawn, too.
    A SCENARIO is printed as its TOML file.
    """
    from sim.interface.showing import show as shown

    found = shown(name, gpus=gpus)
    figure = found.plot(picture) if picture is not None else None
    click.echo(str(found))
    if figure is not None and picture is not None:
        wrote(picture)
