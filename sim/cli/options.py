"""Options that several commands have."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from sim.scenario.scenario import Scenario

INPUT_FILE = click.Path(path_type=Path)
SETTINGS = click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a value: plan.tp=4."
)
PROFILES = click.option(
    "--profile",
    "profiles",
    multiple=True,
    metavar="NAME|FILE",
    help="Use what `sim calibrate` measured; may be repeated.",
)
JOBS = click.option(
    "--jobs", type=click.IntRange(min=1), help="Processes; as many as cores otherwise."
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def scenario_of(name: str, settings: Sequence[str], profiles: Sequence[str] = ()) -> "Scenario":
    """A scenario with the values of `--set` and `--profile`. Raises `InputError`."""
    from sim.scenario.profiles import setting_of
    from sim.scenario.scenario import load, setting

    return load(name, dict(map(setting_of, profiles)) | dict(map(setting, settings)))
