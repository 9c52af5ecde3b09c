"""`sim import`: a job in the words of a framework, as files of a model and a scenario."""

from pathlib import Path

import click

from sim.cli.files import wrote
from sim.config.errors import InputError


# Arguments in quotes begin as options do.
@click.command("import", context_settings={"ignore_unknown_options": True})
@click.argument("framework", type=click.Choice(["megatron"]))
@click.argument("source", metavar="SCRIPT|ARGUMENTS")
@click.option("--topology", required=True, help="The cluster that it runs on.")
@click.option("--gpus", type=click.IntRange(min=1), help="How many; as the script says otherwise.")
@click.option("--name", help="Of the files; the script's otherwise.")
def import_(framework: str, source: str, topology: str, gpus: int | None, name: str | None) -> None:
    """Read a training command: a launch SCRIPT, or its ARGUMENTS in quotes.

    Writes models/NAME.toml and scenarios/NAME.toml, and lists the arguments that it does not know.
    """
    import tomli_w

    from sim.config import catalog
    from sim.config.files import atomic_write
    from sim.frameworks.jobs import imported

    catalog.find("topologies", topology, where="--topology")
    text, stem = _text(source)
    job, name = imported(text), name or stem
    scenario = {
        "model": name,
        "topology": topology,
        "stack": "megatron-core",
        **({"gpus": count} if (count := gpus or job.gpus) else {}),
        "plan": job.plan,
        "change": {"stack": job.stack},
    }
    for folder, content in (("models", job.model), ("scenarios", scenario)):
        path = Path(folder) / f"{name}.toml"
        path.parent.mkdir(exist_ok=True)
        with atomic_write(path) as part:
            part.write_text(tomli_w.dumps(content))
        wrote(path)
    for argument in job.unknown:
        click.echo(f"warning: --{argument} is not known, and not modelled", err=True)
    click.echo(f"{job.silent} further arguments say nothing of a step", err=True)
    if "vocab" not in job.model:
        what = "the vocabulary comes from the tokenizer"
        click.echo(f"warning: {what}; put vocab = ... into models/{name}.toml", err=True)
    click.echo(f"sim run {name}")


def _text(source: str) -> tuple[str, str]:
    """What is written in a script, or the arguments themselves, and a name for it."""
    if source.lstrip().startswith("-") or "\n" in source:
        return source, "imported"
    try:
        return Path(source).read_text(encoding="utf-8"), Path(source).stem
    except (OSError, ValueError):
        remedy = "name a launch script, or put arguments into quotes"
        raise InputError(source, "cannot be read", remedy) from None
