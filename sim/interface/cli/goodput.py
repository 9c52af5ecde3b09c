"""`sim goodput`: how much of many days counts, with failures and checkpoints."""

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
    help="A table of topologies/failures, a .toml, or a .csv of interruptions.",
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

    The share of time that counts, the tokens and what they cost; the exit code is 3 where the job
    does not fit into memory.

    `--set recovery.restart="10 min"` (detection, restart, interval, stop, spares, elastic, ...)
    changes how failures are dealt with, any other key the scenario. Checkpoints that the scenario
    states ([checkpoints]: steps, storage) are taken unless recovery.interval or .storage is set.
    """
    from sim.analysis.reliability.goodput import goodput as goodput_of

    form.show(goodput_of(**question))
