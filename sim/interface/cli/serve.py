"""`sim serve` opens the page on which a user designs a cluster."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from sim.interface.cli import options


@click.command(
    epilog=options.examples(
        "sim serve gpt3-175b-megatron",
        "sim serve config.json --topology dgx-h100-ndr --gpus 64",
        "sim serve record.json.gz --topology dgx-h100-ndr",
    )
)
@click.argument("scenario", required=False)
@options.of_job
@click.option("--port", type=options.Count(0, 65535), help="Port; any free one by default.")
@click.option("--open/--no-open", "opened", default=True, help="Open the page in the browser.")
def serve(
    scenario: str | None,
    named: Mapping[str, Any],
    settings: tuple[str, ...],
    port: int | None,
    opened: bool,
) -> None:
    """Open a page that answers every change of SCENARIO at once.

    SCENARIO is a name (`sim list`), a TOML file, a recording of `sim capture`, or the config.json
    of a checkpoint. The page needs no network. Only this machine can open it, at an address that
    nobody can guess. Ctrl-C ends it.
    """
    import asyncio

    from sim.interface.serve.server import Server
    from sim.interface.serve.server import serve as served

    server = Server(_base(scenario, named, settings), port or 0)
    click.echo(server.address)
    click.echo("Ctrl-C ends the page.", err=True)
    if opened and has_screen():
        click.launch(server.address)
    try:
        asyncio.run(served(server))
    except KeyboardInterrupt:
        click.echo("ended", err=True)
        sys.stdout.flush()
        os._exit(0)  # does not wait for answers that are still computed


def has_screen() -> bool:
    """Whether this machine has a screen for a browser; a remote login usually has none."""
    screens = ("DISPLAY", "WAYLAND_DISPLAY")
    return not sys.platform.startswith("linux") or any(os.environ.get(name) for name in screens)


def _base(scenario: str | None, named: Mapping[str, Any], settings: tuple[str, ...]) -> Any:
    from sim.interface.serve.states import base_of, base_of_job
    from sim.scenario.settings import settings_of

    given = {key: value for key, value in named.items() if value is not None}
    if scenario is not None and Path(scenario).name == "config.json":
        given, scenario = {"model": scenario, **given}, None
    if scenario is None and "model" not in given:
        scenario = "gpt3-175b-megatron"
    if scenario is None:
        return base_of_job(given, settings_of(settings))
    return base_of(scenario, {**given, **settings_of(settings)})
