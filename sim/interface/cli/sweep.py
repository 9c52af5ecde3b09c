"""`sim sweep` simulates a scenario at every point of a grid or table."""

from pathlib import Path
from typing import Any

import click

from sim.analysis.sweeps.table import SUFFIXES
from sim.interface.cli import options
from sim.interface.cli.files import Form, answers, output, wrote


@click.command(
    epilog=options.examples(
        "sim sweep megatron-39b --vary plan.tp=4,8 --vary network.bandwidth=100..800Gb/s:3",
        "sim sweep megatron-39b --vary network.oversubscription=1,2 --set network.nodes_per_pod=8",
        "sim sweep gpt2-one-gpu --vary plan.microbatch=1,2,4 --picture sweep.png --out table.csv",
        "sim sweep ps-ssp --vary sharing.bound=1,4 --seeds 5",
    )
)
@click.argument("scenario")
@click.option(
    "--vary",
    multiple=True,
    metavar="KEY=VALUES",
    help="Values of a key: plan.tp=1,2,4, or network.bandwidth=100..800Gb/s:5 for five evenly "
    "spaced values; may be repeated.",
)
@click.option(
    "--zip",
    "zipped",
    is_flag=True,
    help="Combine the first values of all keys, then the second values, and so on.",
)
@click.option(
    "--csv", type=options.INPUT_FILE, help="Take points from a CSV with a column for each key."
)
@click.option(
    "--samples",
    "--seeds",
    "samples",
    type=options.COUNT,
    help="Draw N steps with stragglers, or run N seeds, at each point.",
)
@options.METHOD
@options.JOBS
@click.option(
    "--store",
    type=options.INPUT_FILE,
    default="sweeps.db",
    show_default=True,
    help="Keep results in this SQLite file; continue from it.",
)
@click.option("--no-store", "forget", is_flag=True, help="Keep nothing.")
@output("--out", SUFFIXES, "Write the table")
@options.PRICE
@options.of_scenario
@answers()
@options.LIMIT
def sweep(store: Path, forget: bool, out: Path | None, form: Form, **question: Any) -> None:
    """Simulate SCENARIO at every point of a grid or table.

    The answer has a row for each point. Rows are stored as they are computed. An interrupted sweep
    continues, and a repeated sweep is answered from the store. Points whose inputs have changed are
    computed anew. The exit code is 3 if no point fits into memory.
    """
    from sim.analysis.sweeps.answer import sweep as swept
    from sim.analysis.sweeps.table import write

    answer = swept(store=None if forget else store, **question)
    if answer.damaged:
        damage = f"{answer.damaged} damaged entries of {store} were computed again; check the disk"
        click.echo(f"warning: {damage}", err=True)
    if out is not None:
        write(answer.frame, out)
        wrote(out)
    form.show(answer)
