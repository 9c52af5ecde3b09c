"""`sim init`: a scenario of one's own, commented, from options or from a few questions."""

import sys
from collections.abc import Callable
from typing import Any

import click

from sim.config.errors import InputError
from sim.interface.cli import options
from sim.interface.cli.files import named, wrote
from sim.results.formatting import several

_QUESTIONS = {
    "model": "Model (a name of `sim list`, a TOML file or a Hugging Face config.json)",
    "topology": "Cluster (a name of `sim list`, or a TOML file)",
    "gpus": "How many of its GPUs",
    "global_batch": "Sequences a step",
}
_PAGE = """\
# {title}. Written by `sim init`; `sim run {name}` simulates a step of it.
# docs/reference.md has every key; `--set plan.tp=4` changes any value for one run.
model = "{model}"  # a name of `sim list`, a TOML file or a Hugging Face config.json
topology = "{topology}"  # the cluster: `sim show {topology}`
gpus = {gpus}  # so many of it
stack = "{stack}"  # the software that runs the job; `sim list` has others
# tokens = 1e12  # of the whole training, for `sim cost`

# The fastest: `sim plan {model} {topology} --gpus {gpus} --global-batch {global_batch}`.
[plan]
global_batch = {global_batch}  # sequences a step, of all GPUs
microbatch = {microbatch}  # sequences at a time on a data-parallel rank
tp = {tp}  # tensor-parallel ranks; best within a node
pp = {pp}  # pipeline stages; data parallelism has the GPUs that are left
# cp = 1  # ranks that share a long sequence
# schedule = "1f1b"  # of the pipeline: zb-h1, dualpipev, a CSV of actions, ...
zero = {zero}  # ZeRO: 0 none, 1 optimizer, 2 gradients too, 3 parameters too (FSDP)
recompute = "{recompute}"  # none, selective, full
sequence_parallel = {sequence_parallel}  # beside tensor parallelism
# precision = "bf16"  # of matrix products: bf16, fp16, fp8, ...

# [change]  # values of the files named above, for this scenario alone
# model.seq = 4096
# network.bandwidth = "200 Gb/s"
# device.memory = "80 GiB"

# [checkpoints]  # for `sim cost` and `sim goodput`
# steps = 500
# storage = "100 GB/s"

# [[straggler]]  # what is slower than its peers
# rank = 0
# factor = 1.1
"""


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
@click.option("--stack", default="megatron-core", show_default=True, help="What runs the job.")
@click.option("--force", is_flag=True, help="Write over a scenario that is there.")
def init(name: str, stack: str, force: bool, **given: Any) -> None:
    """Write a scenario of your own, with a comment on each key.

    It is scenarios/NAME.toml, with a first plan that fits if a change or two of the plainest make
    one. What no option says is asked for.
    """
    path = named("scenarios", name, force=force)
    job = {"stack": stack, **_asked(given)}
    written = _page(name, job)
    from sim.config.files import atomic_write

    path.parent.mkdir(exist_ok=True)
    with atomic_write(path) as part:
        part.write_text(written, encoding="utf-8")
    wrote(path)
    click.echo(f"sim run {name}")


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


def _page(name: str, job: dict[str, Any]) -> str:
    """The file, of a plan that fits if the remedies of what does not know one."""
    from sim import run
    from sim.kind import described

    document = {"name": name, **{k: job[k] for k in ("model", "topology", "gpus", "stack")}}
    scenario = described({**document, "plan": {"global_batch": job["global_batch"]}})
    result = run(scenario)
    if not result.fits and result.remedies:
        remedy = [f"plan.{own.replace(' = ', '=')}" for own in result.remedies[0].split(" and ")]
        scenario = described({**document, "plan": {"global_batch": job["global_batch"]}}, remedy)
    elif not result.fits:
        ask = f"sim plan {job['model']} {job['topology']} --gpus {job['gpus']}"
        click.echo(f"warning: no simple plan fits into memory; try `{ask}`", err=True)
    plan = scenario.layout
    keys = ("microbatch", "tp", "pp", "zero", "recompute")
    size = f"{several(job['gpus'], 'GPU')} of {job['topology']}"
    title = f"{options.title(job['model'])} on {size}"
    return _PAGE.format(
        **job,
        title=title,
        name=name,
        sequence_parallel=str(plan.sequence_parallel).lower(),
        **{key: getattr(plan, key) for key in keys},
    )
