"""The command `sim measure`."""

import json
from pathlib import Path
from typing import Literal

import click

from sim.cli import options
from sim.cli.files import output, wrote


@click.command(epilog=options.examples("sim measure gpt2-one-gpu", "sim measure gpt-small-cpu"))
@click.argument("scenario")
@options.SETTINGS
@options.PROFILES
@click.option("--device", type=click.Choice(["cuda", "cpu"]), help="A GPU if there is one.")
@click.option("--steps", type=options.COUNT, default=20, show_default=True)
@click.option(
    "--calibrate/--no-calibrate",
    default=None,
    help="Time kernels between the steps and predict from them; on CPUs unless --profile.",
)
@output("--rows", (".csv",), "Write every step's phases")
@options.LIMIT
@options.JSON
def measure(
    scenario: str,
    settings: tuple[str, ...],
    device: Literal["cuda", "cpu"] | None,
    steps: int,
    profiles: tuple[str, ...],
    calibrate: bool | None,
    rows: Path | None,
    as_json: bool,
) -> None:
    """Run SCENARIO's step in torch here, beside its prediction.

    Builds GPT, Llama and BERT models with the scenario's precision, recomputation, attention and
    accumulation; with plan.dp above 1 as DDP (or FSDP, plan.zero=3) over ranks of its own, or
    under torchrun.
    """
    from sim.calibration.training import measure as training
    from sim.calibration.training.comparison import write_steps
    from sim.calibration.training.interleaving import interleaving

    here = training.available_device(device)
    job = options.scenario_of(scenario, settings, profiles)
    if calibrate is None:
        calibrate = here == "cpu" and not profiles
    comparison = training.measure(
        job, device=here, interleaving=interleaving(steps), calibrate=calibrate, report=_report
    )
    if comparison is None:  # a rank that does not report
        return
    if rows is not None:
        write_steps(comparison, rows)
        wrote(rows)
    click.echo(json.dumps(comparison.to_dict()) if as_json else str(comparison))


def _report(message: str) -> None:
    click.echo(message, err=True)
