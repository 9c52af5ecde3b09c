"""`sim measure` runs a step in torch on this machine, beside its prediction."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from sim.config.errors import InputError
from sim.interface.cli import options
from sim.interface.cli.files import Form, answers, output, wrote

if TYPE_CHECKING:
    from sim.analysis.calibration.training.comparison import JobComparison


@click.command(epilog=options.examples("sim measure gpt2-one-gpu", "sim measure gpt-small-cpu"))
@click.argument("words", nargs=-1, metavar="[SCENARIO | -- ARGUMENTS]")
@click.option("--script", type=options.INPUT_FILE, help="Run a training script instead.")
@click.option("--topology", help="Predict --script on this cluster; default on a CPU: cpu-2.")
@click.option(
    "--stack", help="The script's software; default: pytorch-cpu on a CPU, else pytorch-eager."
)
@click.option(
    "--world", type=options.COUNT, default=1, show_default=True, help="Ranks of --script."
)
@options.SETTINGS
@options.PROFILES
@click.option(
    "--device", type=click.Choice(["cuda", "cpu"]), help="Default: a GPU if there is one."
)
@click.option("--steps", type=options.COUNT, default=20, show_default=True)
@click.option(
    "--calibrate/--no-calibrate",
    default=None,
    help="Time kernels between the steps and predict from these times. It is the default on CPUs "
    "without --profile.",
)
@click.option("--print-script", is_flag=True, help="Print the script of SCENARIO; run nothing.")
@output("--rows", (".csv",), "Write every step's phases")
@options.LIMIT
@answers()
def measure(
    words: tuple[str, ...],
    script: Path | None,
    topology: str | None,
    stack: str | None,
    world: int,
    settings: tuple[str, ...],
    device: Literal["cuda", "cpu"] | None,
    steps: int,
    profiles: tuple[str, ...],
    calibrate: bool | None,
    print_script: bool,
    rows: Path | None,
    form: Form,
) -> None:
    """Run SCENARIO's step in torch here, beside its prediction.

    SCENARIO becomes a script of plain torch: a GPT, Llama or BERT model with the scenario's
    precision, recomputation, attention and accumulation. With plan.dp above 1 it uses DDP (FSDP if
    plan.zero=3) on ranks that it starts, or that torchrun starts. With --script a script is run as
    it is, with its own ARGUMENTS after `--`. One of its steps is captured and played.
    """
    from sim.analysis.calibration.training import measure as training
    from sim.analysis.calibration.training.comparison import write_steps
    from sim.analysis.calibration.training.real_run import interleaving
    from sim.scenario.setting_texts import setting, setting_of

    here = training.available_device(device)
    if script is not None:
        given = dict(map(setting_of, profiles)) | dict(map(setting, settings))
        asked = {"world": world, "steps": steps, "settings": given}
        return form.show(_of_script(script, words, here, topology, stack, **asked))
    if len(words) != 1:
        raise InputError("sim measure", "no SCENARIO", "name one, or --script train.py")
    (scenario,) = words
    job = options.scenario_of(scenario, settings, profiles)
    if print_script:
        click.echo(training.printed(job, device=here, steps=steps), nl=False)
        return
    if calibrate is None:
        calibrate = here == "cpu" and not profiles
    comparison = training.measure(
        job, device=here, interleaving=interleaving(steps), calibrate=calibrate,
        report=lambda message: click.echo(message, err=True),
    )  # fmt: skip
    if comparison is None:  # a rank that does not report
        return
    if rows is not None:
        write_steps(comparison, rows)
        wrote(rows)
    form.show(comparison)


def _of_script(
    script: Path,
    arguments: tuple[str, ...],
    here: Literal["cuda", "cpu"],
    topology: str | None,
    stack: str | None,
    **asked: Any,
) -> "JobComparison":
    """Return the real steps of a script beside the simulated steps of its recording."""
    from sim.analysis.calibration.training.measure import measure_script

    if topology is None and here == "cuda":
        raise InputError("--script", "no --topology to play it on", "name one: sim list topologies")
    stack = stack or ("pytorch-eager" if here == "cuda" else "pytorch-cpu")
    topology = topology or "cpu-2"
    return measure_script(script, arguments, device=here, topology=topology, stack=stack, **asked)
