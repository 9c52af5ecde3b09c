"""The command `sim measure`."""

import json
from pathlib import Path
from typing import Literal

import click

FILE = click.Path(path_type=Path)


@click.command()
@click.argument("scenario")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a value: plan.dp=2."
)
@click.option("--device", type=click.Choice(["cuda", "cpu"]), help="A GPU if there is one.")
@click.option("--steps", type=click.IntRange(min=1), default=20, show_default=True)
@click.option(
    "--profile", "profiles", multiple=True, metavar="NAME", help="Predict from it; may be repeated."
)
@click.option(
    "--calibrate/--no-calibrate",
    default=None,
    help="Time kernels between the steps and predict from them; on CPUs unless --profile.",
)
@click.option("--rows", type=FILE, help="Write every step's phases: .csv.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
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
    """Run SCENARIO's training step in torch on this machine, beside its prediction.

    Builds GPT, Llama and BERT models with the scenario's precision, recomputation, attention and
    accumulation; with plan.dp above 1 as DDP (or FSDP, plan.zero=3) over ranks of its own, or
    under torchrun.
    """
    from sim.calibration.training import measure as measuring
    from sim.calibration.training.comparison import write_steps
    from sim.calibration.training.interleaving import interleaving
    from sim.cli import outputs

    if rows is not None:
        outputs.check({"out": rows})
    chosen = measuring.available_device(device)
    comparison = measuring.measure(
        measuring.scenario_of(scenario, settings, profiles),
        device=chosen,
        interleaving=interleaving(steps),
        calibrate=chosen == "cpu" and not profiles if calibrate is None else calibrate,
        report=_report,
    )
    if comparison is None:
        return
    if rows is not None:
        write_steps(comparison, rows)
        click.echo(f"wrote {rows}", err=True)
    click.echo(json.dumps(comparison.to_dict()) if as_json else str(comparison))


def _report(message: str) -> None:
    click.echo(message, err=True)
