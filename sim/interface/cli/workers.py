"""`sim workers` predicts the time and cost to reach a target, for several numbers of workers."""

from typing import Any

import click

from sim.config.errors import InputError
from sim.interface.cli import options
from sim.interface.cli.files import Form, answers


@click.command(
    epilog=options.examples(
        "sim workers gpt2-1.5b-workers --counts 8,16,32,64 --picture workers.png",
        "sim workers all-reduce-ddp --critical-batch 1e3 --least-samples 1e7",
    )
)
@click.argument("scenario")
@click.option("--counts", default="1,2,4,8", show_default=True, help="Numbers of workers.")
@click.option("--critical-batch", type=options.NUMBER, help="Samples; default: the task's.")
@click.option(
    "--least-samples", type=options.NUMBER, help="Samples to the target with small batches."
)
@options.METHOD
@options.TASK
@answers("Draw time and cost")
@options.PRICE
@options.of_scenario
@options.LIMIT
def workers(counts: str, form: Form, **question: Any) -> None:
    """Say where more workers of SCENARIO stop helping.

    The answer has the time and cost to reach the target for each number of workers. The exit code
    is 3 if the job fits into memory with none of these numbers.
    """
    from sim.jobs.sharing.worker_counts import workers as counted

    try:
        numbers = [int(count) for count in counts.split(",")]
    except ValueError:
        raise InputError("--counts", f"{counts!r} are no numbers", "e.g. 1,2,4,8") from None
    form.show(counted(counts=numbers, **question))
