"""`sim run` predicts a training step, or many steps with stragglers, and writes files on them."""

from collections.abc import Mapping
from functools import cache
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import click

from sim.config.errors import InputError
from sim.config.plugins import modules
from sim.config.progress import waited
from sim.interface.cli import options
from sim.interface.cli.files import Form, answers, output_attributes, wrote


def _outputs() -> Mapping[str, ModuleType]:
    return modules("sim.interface.outputs")


class _WithOutputs(click.Command):
    """A command that also has an option for each module of `sim.interface.outputs`."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        *params, help_option = super().get_params(ctx)
        return [*params, *map(_option, _outputs()), help_option]


@cache  # click tells options apart by identity
def _option(name: str) -> click.Option:
    module = _outputs()[name]
    return click.Option([_flag(name), name], **output_attributes(module.SUFFIXES, module.HELP))


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


@click.command(
    cls=_WithOutputs,
    epilog=options.examples(
        "sim run gpt3-175b-megatron --report step.html",
        'sim run megatron-39b --set plan.tp=4 --set network.bandwidth="200 Gb/s"',
        "sim run --model llama3-8b --topology dgx-h100-ndr --gpus 16 --set plan.global_batch=64",
        "sim run llama3-405b-16k --samples 200 --picture stragglers.png",
    ),
)
@click.argument("scenario", required=False)
@options.of_job
@options.PRICE
@options.PROFILES
@click.option("--unfold", is_flag=True, help="Simulate each rank separately (slow, same answer).")
@click.option(
    "--engine",
    type=click.Choice(["auto", "clock", "replay"]),
    default="auto",
    help="Play the step on the clock, or replay it without a clock.",
)
@click.option("--samples", type=options.COUNT, help="Draw N steps with stragglers ([jitter]).")
@click.option("--seeds", type=options.COUNT, help="Run N seeds (updates, paths or placement).")
@options.METHOD
@options.TASK
@options.LIMIT
@answers("Draw the pipeline, or the distribution of samples")
def run(
    scenario: str | None,
    named: Mapping[str, Any],
    price: str | None,
    settings: tuple[str, ...],
    profiles: tuple[str, ...],
    unfold: bool,
    engine: Literal["auto", "clock", "replay"],
    samples: int | None,
    seeds: int | None,
    task: Path | None,
    form: Form,
    **outputs: Path | None,
) -> None:
    """Predict one training step of SCENARIO.

    SCENARIO is a name (`sim list`), a TOML file, or a recording of `sim capture`. Without SCENARIO,
    give --model and --topology. The exit code is 3 if the job does not fit into memory, 5 if that
    is unknown.
    """
    from sim.analysis.run import run as asked

    settings = settings if price is None else (*settings, f"topology.price.hour={price}")
    job = options.scenario_of(scenario, settings, profiles, named)
    if samples is not None and seeds is not None:
        raise InputError("--seeds", "draws the same as --samples", "give one of the two")
    samples = samples or seeds
    files = {name: path for name, path in outputs.items() if path is not None}
    if samples is not None:
        _refuse_with_samples(files)
    answer = asked(job, samples=samples, unfold=unfold, engine=engine, task=task)
    writer = "write" if samples is None else "write_samples"
    for name, path in files.items():
        write = getattr(_outputs()[name], writer)
        drawn = {"width": form.width} if "width" in signature(write).parameters else {}
        waited(f"writing {path}")(write)(answer, path, **drawn)
        wrote(path)
    form.show(answer)


def _refuse_with_samples(files: dict[str, Path]) -> None:
    for name in files:
        if not hasattr(_outputs()[name], "write_samples"):
            fault = "plays a single step or run, but --samples plays many"
            raise InputError(_flag(name), fault, "leave out one of the two")
