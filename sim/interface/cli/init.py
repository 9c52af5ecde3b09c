"""`sim init`: a scenario of one's own, commented, from options or from a few questions."""

import sys
from collections.abc import Callable
from typing import Any

import click

from sim.config.errors import InputError
from sim.interface.cli import options
from sim.interface.cli.files import wrote

_QUESTIONS = {
    "model": "Model (a name of `sim list`, a TOML file or a Hugging Face config.json)",
    "topology": "Cluster (a name of `sim list`, or a TOML file)",
    "gpus": "How many of its GPUs",
    "global_batch": "Sequences a step",
}


@click.command(
    epilog=options.examples(
        "sim init mine",
        "sim init mine --model llama3-8b --topology dgx-h100-ndr --gpus 16 --global-batch 64",
    )
)
@click.argument("name")
@click.option("--model", help="A name, a TOML file or a Hugging Face config.json.")
@click.option("--topology", help="The cluster: a name or a TOML file.")
@click.option("--gpus", type=options.COUNT, help="How many of it.")
@click.option("--global-batch", type=options.COUNT, help="Sequences a step.")
@click.option("--seq", type=options.COUNT, help="Tokens per sequence; the model's by default.")
@click.option("--stack", default="megatron-core", show_default=True, help="What runs the job.")
@click.option("--force", is_flag=True, help="Write over a scenario that is there.")
def init(name: str, seq: int | None, stack: str, force: bool, **given: Any) -> None:
    """Write a scenario of your own, with a comment on each key.

    It is scenarios/NAME.toml, with a first plan that fits if a change or two of the plainest make
    one. What no option says is asked for.
    """
    from sim.interface.starting import init as started
    from sim.interface.starting import scenario_file

    scenario_file("scenarios", name, force=force)  # before anything is asked
    job = _asked(given)
    found = started(name, seq=seq, stack=stack, force=force, **job)
    for note in found.notes:
        click.echo(f"note: {note}", err=True)
    if not found.fits:
        ask = f"sim plan {job['model']} {job['topology']} --gpus {job['gpus']}"
        click.echo(f"warning: no simple plan fits into memory; try `{ask}`", err=True)
    wrote(found.path)
    click.echo(str(found))


def _asked(given: dict[str, Any]) -> dict[str, Any]:
    """The options, and answers for those that are not given where there is someone to ask."""
    missing = [key for key, value in given.items() if value is None]
    if missing and not sys.stdin.isatty():
        flags = ", ".join(f"--{key.replace('_', '-')}" for key in missing)
        raise InputError("sim init", f"nobody to ask for {flags}", "give the options")
    for key in missing:
        given[key] = click.prompt(_QUESTIONS[key], value_proc=_ANSWERS[key], err=True)
    return given


def _count(text: str) -> int:
    return options.COUNT.convert(text, None, None)


def _model(name: str) -> str:
    from sim.model import reading

    return _known(name, reading.load)


def _topology(name: str) -> str:
    from sim.hardware.cluster import topology

    return _known(name, topology.load)


def _known(name: str, load: Callable[[str], Any]) -> str:
    """A name that stands for something; another one is asked for again."""
    try:
        load(name)
    except InputError as error:
        raise click.UsageError(str(error)) from None
    return name


_ANSWERS: dict[str, Callable[[str], Any]] = {
    "model": _model,
    "topology": _topology,
    "gpus": _count,
    "global_batch": _count,
}
