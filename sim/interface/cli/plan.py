"""`sim plan` searches the fastest layout that fits into memory."""

from typing import Any

import click

from sim.config.errors import InputError
from sim.interface.cli import options
from sim.interface.cli.files import STOPPED, Form, answers
from sim.interface.frameworks.names import LOOPS, NAMES


@click.command(
    epilog=options.examples(
        "sim plan llama3-8b dgx-h100-ndr --gpus 32 --global-batch 256",
        "sim plan config.json dgx-h100-ndr --gpus 64 --global-batch 512 --emit megatron",
        "sim plan gpt3-175b dgx-a100-hdr --gpus 1024 --global-batch 1536 --only zero=1,3",
    )
)
@click.argument("model")
@click.argument("topology")
@click.option("--gpus", type=options.COUNT, help="GPUs of TOPOLOGY in use; all by default.")
@click.option("--global-batch", type=options.COUNT, help="Sequences per step; a MODEL needs it.")
@click.option("--stack", help="Software of the job; default: --emit's, or megatron-core.")
@click.option("--precision", default="bf16", show_default=True, help="Format of matrix products.")
@click.option("--seq", type=options.COUNT, help="Tokens per sequence; MODEL's by default.")
@click.option(
    "--only",
    multiple=True,
    metavar="CHOICE=VALUE[,VALUE]",
    help="Search these values only, such as zero=1,3 or schedule=1f1b; repeatable.",
)
@click.option(
    "--without",
    multiple=True,
    metavar="CHOICE=VALUE[,VALUE]",
    help="Leave these values out; repeatable.",
)
@click.option(
    "--within",
    type=click.FloatRange(1.0, 1e6),
    default=1.25,
    show_default=True,
    help="Keep layouts that take at most this multiple of the best step time.",
)
@options.JOBS
@options.PRICE
@answers("Draw time against memory", "--plot")
@click.option(
    "--emit",
    type=click.Choice([*NAMES, *LOOPS, "toml"]),
    help="Print the recommended layout as a file of a framework; toml: a [plan] table.",
)
@options.LIMIT
def plan(
    model: str,
    topology: str,
    global_batch: int | None,
    emit: str | None,
    form: Form,
    **question: Any,
) -> None:
    """Find the fastest layout of MODEL that fits on TOPOLOGY.

    MODEL may be a scenario of reinforcement learning on TOPOLOGY. The search then divides its GPUs
    in other ways, and --emit verl or nemo-rl prints how to start the best division. MODEL may be a
    recording of `sim capture`. The search then tries other numbers of GPUs (only --gpus if given),
    batches and shardings of states, and orders them by samples a second and GPU.
    The exit code is 3 if no layout fits into memory. Choices are tp, cp, pp, ep, etp,
    microbatch, recompute, context, sequence_parallel, schedule, interleave, layers (even,
    balanced), dispatcher, overlap_experts, zero, reshard, no_sync, offload, dp_replicate and order.
    """
    from sim.analysis.search.plan import plan as planned
    from sim.interface.document.answers import line
    from sim.interface.frameworks.jobs import foreign, start
    from sim.jobs.recorded.file import is_script

    if is_script(model) or _moves(model):
        named = {"topology": topology, "gpus": question["gpus"], "stack": question["stack"]}
        settings = {key: value for key, value in named.items() if value}
        return _show_moves(model, settings, global_batch, question["price"], form, emit)
    if emit in LOOPS:
        fault = "starts loops of generation and training"
        raise InputError(f"--emit {emit}", fault, "name a scenario with [reinforcement] as MODEL")
    if global_batch is None:
        raise InputError("sim plan", "no --global-batch", "say how many sequences a step has")
    outcome = planned(model, topology, global_batch=global_batch, framework=emit or "", **question)
    if emit is None:
        form.show(outcome)
    else:
        form.write(outcome)
        for note in (line(outcome), *outcome.inputs.notes):
            click.echo(f"note: {note}", err=True)
        if other := foreign(emit, outcome.space.stack):
            click.echo(f"warning: {other}", err=True)
        if begun := start(emit, outcome.recommended.plan, outcome.space.topology):
            click.echo(f"note: {begun}", err=True)
        _print_emitted(outcome, emit)
    if outcome.stopped:
        raise click.exceptions.Exit(STOPPED)


def _moves(name: str) -> bool:
    """Whether a name or path is a scenario (not a model) of a kind whose jobs have `moves`."""
    from importlib import import_module

    from sim import kind
    from sim.config import catalog
    from sim.interface.views.model import is_model

    if is_model(name) or not catalog.found("scenarios", name):
        return False
    return hasattr(import_module(kind.load(name).kind), "moves")


def _show_moves(
    record: str,
    settings: dict[str, Any],
    global_batch: int | None,
    price: str | None,
    form: Form,
    emit: str | None,
) -> None:
    """Print the other layouts, numbers of GPUs and batches that a recorded or RL job can take."""
    from sim.analysis.explanation.moves import moves
    from sim.config.readable import human_seconds

    rent = {"topology.price.hour": price} if price else {}
    found = moves(record, settings | rent, global_batch=global_batch)
    if emit is None:
        form.show(found)
    else:
        form.write(found)
        if best := found.recommended:
            click.echo(f"note: {best.moved}: {human_seconds(best.step_time)} a step", err=True)
        _print_emitted(found, emit)


def _print_emitted(outcome: Any, form: str) -> None:
    text, unsaid = outcome.emitted(form)
    for choice in unsaid:
        click.echo(f"warning: not passed to {form}: {choice}", err=True)
    click.echo(text)
