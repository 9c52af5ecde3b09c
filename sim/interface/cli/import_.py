"""`sim import` turns the files or arguments of a framework into a scenario, and maybe a model."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sim.config import reads
from sim.config.errors import InputError
from sim.interface.cli.files import wrote
from sim.interface.cli.options import COUNT, examples
from sim.interface.frameworks.names import LOOPS, NAMES

if TYPE_CHECKING:
    from sim.interface.frameworks.jobs import Imported


_UNNAMED = "imported"  # the name of a scenario that comes from arguments, not from a file
_MOST = 1 << 20  # bytes of the longest file that is read


# A framework's arguments in quotes begin with dashes, as options do.
@click.command(
    "import",
    context_settings={"ignore_unknown_options": True},
    epilog=examples(
        "sim import megatron pretrain.sh --topology dgx-h100-ndr",
        "sim import nemo-rl grpo_math_8B.yaml --topology dgx-h100-ndr",
        "sim import torchtitan llama3_8b.toml --topology dgx-h100-ndr --gpus 64",
    ),
)
@click.argument("framework", metavar="|".join((*NAMES, *LOOPS)))
@click.argument("source", metavar="FILE|ARGUMENTS")
@click.argument("more", nargs=-1, type=click.UNPROCESSED)
@click.option("--topology", required=True, help="The cluster that the job runs on.")
@click.option(
    "--model", help="A name of models/ or a config.json, if the framework describes no model."
)
@click.option("--gpus", type=COUNT, help="Number of GPUs; default: the file's.")
@click.option("--line", type=COUNT, help="Line of the command, if a script has several.")
@click.option("--name", help="Name of the new files; default: FILE's.")
@click.option("--force", is_flag=True, help="Overwrite existing files.")
def import_(
    framework: str,
    source: str,
    more: tuple[str, ...],
    topology: str,
    model: str | None,
    gpus: int | None,
    line: int | None,
    name: str | None,
    force: bool,
) -> None:
    """Turn a job of a FRAMEWORK into a scenario.

    FILE is Megatron-LM's launch script, torchtitan's TOML, DeepSpeed's JSON or nanotron's YAML. It
    may also be a recipe of Megatron-Bridge or NeMo 2 as YAML, NeMo RL's YAML, or verl's script or
    YAML. ARGUMENTS in quotes are arguments of Megatron-LM, or a recipe with its changes
    (model.tensor_model_parallel_size=4).

    The command writes scenarios/NAME.toml, and models/NAME.toml if the framework describes the
    model. It lists the arguments that it does not know.
    """
    from sim.config import catalog
    from sim.interface.frameworks.command_line import at_line
    from sim.interface.frameworks.jobs import imported, importer_of

    if more:
        fault = f"{more[0]!r} after {source!r:.40} is neither an option nor one of the arguments"
        remedy = (
            "put all arguments into one pair of quotes; --name names the files that are written"
        )
        raise InputError("sim import", fault, remedy)
    importer_of(framework)
    catalog.find("topologies", topology, where="--topology")
    text, stem = _text(source)
    try:
        text = at_line(text, line) if line else text
        job, name = imported(framework, text, gpus or 0, model or ""), name or stem
    except InputError as error:
        where = error.where if stem == _UNNAMED else f"{source}, {error.where}"
        raise InputError(where, error.what, error.remedy) from None
    model_table = _model(job, framework, model)
    called = model_table["like"] if model_table.keys() == {"like"} else name
    from sim.interface.starting import scenario_file

    files = {scenario_file("models", name, force=force): model_table} if called == name else {}
    scenario: dict[str, Any] = {"model": called, "topology": topology, "stack": job.stack}
    scenario |= {"gpus": job.gpus} if job.gpus else {}
    changes = {"change": {"stack": job.changes}} if job.changes else {}
    scenario |= {"plan": job.plan, **job.further, **changes}
    files[scenario_file("scenarios", name, force=force)] = scenario
    for path, content in files.items():
        _write(path, content)
    _say(job, name, model_table)
    click.echo(f"sim run {name}")


def _model(job: "Imported", framework: str, model: str | None) -> dict[str, Any]:
    """Return the keys of the model's file: all keys, or `like` another model with the keys that
    differ. Raises `InputError` if neither the framework nor `--model` names the model."""
    like = model or job.model.get("like")
    if model and "layers" in job.model:
        return {"like": model}
    if like is None and "layers" not in job.model:
        known = f"calls its model {job.called!r}, which is not known here"
        fault = f"{framework} {known if job.called else 'does not describe the model'}"
        raise InputError(
            "--model", fault, "name a file of models/, or the config.json of the model"
        )
    return ({"like": like} if like else {}) | {k: v for k, v in job.model.items() if k != "like"}


def _write(path: Path, content: dict[str, Any]) -> None:
    import tomli_w

    from sim.config.files import atomic_write

    path.parent.mkdir(exist_ok=True)
    with atomic_write(path) as part:
        part.write_text(tomli_w.dumps(content))
    wrote(path)


def _say(job: "Imported", name: str, model: dict[str, Any]) -> None:
    """Print warnings: arguments that are unknown, and values that the user still has to give."""
    for note in job.notes:
        click.echo(f"warning: {note}", err=True)
    for argument in job.unknown:
        click.echo(f"warning: {argument} is not known, and not modelled", err=True)
    click.echo(f"{job.silent} further arguments do not concern a step", err=True)
    if not job.gpus and not job.plan.get("dp"):
        missing = "no number of GPUs is given, so the whole cluster is taken"
        click.echo(f"warning: {missing}; give --gpus, or run it with --gpus", err=True)
    if job.model and not {"vocab", "like"} & set(model):
        missing = "the vocabulary comes from the tokenizer"
        click.echo(f"warning: {missing}; put vocab = ... into models/{name}.toml", err=True)


def _text(source: str) -> tuple[str, str]:
    """Return the text of a file, or the arguments themselves, and a name for the scenario."""
    changes = "=" in source and not reads.exists(Path(source))
    if source.lstrip().startswith("-") or "\n" in source or changes:
        return source, _UNNAMED
    if not source.strip():
        raise InputError("sim import", "nothing to read", "name a file, or put arguments in quotes")
    try:
        return reads.text(Path(source), most=_MOST), Path(source).stem
    except InputError as error:
        remedy = "name a file, or put arguments into quotes"
        raise InputError(error.where, error.what, remedy) from None
