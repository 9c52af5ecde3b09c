"""`sim goodput` simulates days with failures and checkpoints: how much of the time is training?"""

from typing import Any

import click

from sim.interface.cli import options
from sim.interface.cli.files import Form, answers


@click.command(
    epilog=options.examples(
        "sim goodput llama3-405b-16k --picture month.png",
        'sim goodput megatron-39b --days 90 --set recovery.restart="20 min"',
    )
)
@click.argument("scenario", required=False)
@click.option(
    "--failures",
    default="llama3",
    show_default=True,
    help="A name of topologies/failures, a .toml file, or a .csv file of interruptions.",
)
@click.option(
    "--days",
    type=options.NUMBER,
    default=30.0,
    show_default=True,
    help="How long to simulate.",
)
@click.option("--seed", type=options.Count(0), default=0, show_default=True)
@options.METHOD
@options.PRICE
@options.of_scenario
@answers()
@options.LIMIT
def goodput(form: Form, **question: Any) -> None:
    """Simulate days of SCENARIO with failures and checkpoints.

    The answer has the share of effective training time, the tokens and their cost. The exit code is
    3 if the job does not fit into memory.

    `--set recovery.KEY=VALUE` (detection, restart, interval, stop, spares, elastic, ...) changes
    the recovery from failures; any other key changes the scenario. The scenario's [checkpoints]
    (steps, storage) hold unless recovery.interval or recovery.storage is set.
    """
    from sim.analysis.reliability.goodput import goodput as goodput_of

    form.show(goodput_of(**question))
