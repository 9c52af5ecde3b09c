"""`sim init` writes a commented scenario for the user's own job, from options or questions."""

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
@click.option("--gpus", type=options.COUNT, help="GPUs of the cluster.")
@click.option("--global-batch", type=options.COUNT, help="Sequences a step.")
@click.option("--seq", type=options.COUNT, help="Tokens per sequence; the model's by default.")
@click.option("--stack", default="megatron-core", show_default=True, help="The software.")
@click.option("--force", is_flag=True, help="Overwrite an existing scenario.")
def init(name: str, seq: int | None, stack: str, force: bool, **given: Any) -> None:
    """Write a scenario of your own, with a comment on each key.

    The file is scenarios/NAME.toml. Its plan is the plainest plan, with a change or two if that
    makes it fit into memory. The command asks for values that no option gives.
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
    """Return the options; on a terminal, ask the user for missing options."""
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
    """Return the name if it can be loaded; else raise `UsageError`, so click asks again."""
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
