"""`sim goodput`: how much of many days counts, with failures and checkpoints."""

import json

import click

from sim.cli import options
from sim.config.errors import InputError

MOST_DAYS = 36_525.0


@click.command()
@click.argument("scenario")
@click.option(
    "--failures",
    default="llama3",
    show_default=True,
    help="A table of topologies/failures, a .toml, or a .csv of interruptions.",
)
@click.option(
    "--days",
    type=float,
    default=30.0,
    show_default=True,
    help="How long to simulate.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@options.SETTINGS
@options.JSON
def goodput(
    scenario: str, failures: str, days: float, seed: int, settings: tuple[str, ...], as_json: bool
) -> None:
    """Simulate days of SCENARIO with failures: goodput, checkpoints, cost.

    `--set recovery.restart="10 min"` (detection, restart, interval, stop, spares, elastic, ...)
    changes how failures are dealt with, any other key the scenario.
    """
    if not 0.0 < days <= MOST_DAYS:
        raise InputError("--days", f"{days:g} days", "simulate more than none, a century at most")
    from sim.reliability import failures as tables
    from sim.reliability.goodput import goodput as simulated
    from sim.scenario.scenario import setting
    from sim.scenario.setup import from_scenario
    from sim.simulate import run

    of_failures = [text for text in settings if text.startswith(("recovery.", "gpus_per_node="))]
    table = tables.load(failures, list(map(setting, of_failures)))
    of_scenario = [text for text in settings if text not in of_failures]
    setup = from_scenario(options.scenario_of(scenario, of_scenario))
    answer = simulated(setup, run(setup), table, days=days, seed=seed)
    click.echo(json.dumps(answer.to_dict()) if as_json else str(answer))
