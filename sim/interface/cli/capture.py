"""`sim capture` records a training script without a GPU, and can play the recording at once."""

import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sim.config.errors import InputError
from sim.interface.cli import options
from sim.interface.cli.files import Form, answers, output, wrote

if TYPE_CHECKING:
    from sim.jobs.capturing.entry import Started
    from sim.jobs.recorded.recording import Recording
    from sim.scenario.scenario import BaseScenario

OWN_ERROR = 1  # the exit code of a script that ends by an exception of its own


@click.command(
    epilog=options.examples(
        "sim capture train.py --world 512 --on dgx-h100-ndr --advise -- --batch 4",
        "sim capture train.py --world 16 --out record.json.gz -- --batch 4",
        "sim capture --out record.json.gz -- torchrun --nproc-per-node 8 -m pkg.train --batch 4",
        "sim run record.json.gz --topology dgx-h100-ndr --gpus 64",
    )
)
@click.argument("script", required=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("-m", "--module", metavar="NAME", help="Run a module, as `python -m` does.")
@click.option("-c", "--code", metavar="TEXT", help="Run this code, as `python -c` does.")
@click.option("--world", type=options.COUNT, help="Ranks of the whole job.")
@click.option("--rank", type=click.IntRange(0), default=0, show_default=True)
@click.option(
    "--stages", is_flag=True, help="Record the ranks with which this rank exchanges messages, too."
)
@click.option(
    "--routing",
    default="balanced",
    show_default=True,
    help="How tokens go to experts: balanced, zipf=EXPONENT, dirichlet=ALPHA or a CSV of counts.",
)
@click.option(
    "--step", "--steps", "step", metavar="N or N..M",
    help="Steps of the script to record. Default: the second if it is like the first, else a step "
    "like most others.",
)  # fmt: skip
@click.option(
    "--marks", default="", metavar="WHAT",
    help="Steps end at marks: profiler (torch.profiler's steps) or nvtx=TEXT (NVTX ranges whose "
    "names begin with TEXT). A script may call sim.step().",
)  # fmt: skip
@click.option(
    "--samples-per-step", "samples", type=options.COUNT,
    help="Samples that a rank trains on in a step, if its loader does not say so.",
)  # fmt: skip
@click.option(
    "--value", "values", multiple=True, metavar="LINE=VALUE",
    help="State the unknown value on a line: train.py:119=false.",
)  # fmt: skip
@click.option(
    "--gpu", default="h100-80gb-sxm", show_default=True, help="The device the script sees."
)
@click.option(
    "--timeout",
    type=click.FloatRange(0.0),
    default=0.0,
    help="Seconds the script may run; 0: no limit.",
)
@click.option("--traceback", "trace", is_flag=True, help="Show the traceback if recording fails.")
@output("--out", (".json", ".gz"), "Write the recording")
@click.option("--on", "topology", help="Play the recording on this cluster, and explain its step.")
@click.option("--stack", help="Use this software.")
@options.SETTINGS
@options.PROFILES
@click.option("--advise", is_flag=True, help="Try changes of the script, and rank them.")
@answers()
@options.LIMIT
def capture(
    script: str | None,
    arguments: tuple[str, ...],
    module: str | None,
    code: str | None,
    world: int | None,
    out: Path | None,
    step: str | None,
    values: tuple[str, ...],
    samples: int | None,
    trace: bool,
    topology: str | None,
    stack: str | None,
    settings: tuple[str, ...],
    profiles: tuple[str, ...],
    advise: bool,
    form: Form,
    **given: Any,
) -> None:
    """Record a training SCRIPT on a GPU that is not there.

    The script sees a job of --world ranks. A step lasts from the end of an optimizer step to the
    end of the next. The script's own ARGUMENTS follow `--`. SCRIPT may be a command: torchrun,
    accelerate launch, deepspeed, python.

    The script is executed on this machine, as `python SCRIPT` would be. Its exceptions are shown as
    Python shows them, with exit code 1. The recording is data: `sim run RECORDING --topology NAME`
    plays it without torch. With --on the recording is played at once, and its step is explained.
    The exit code is then 3 if the job does not fit into memory.
    """
    from sim.analysis.explanation.explain import explain
    from sim.jobs.capturing.capture import capture_entry
    from sim.jobs.capturing.refusals import shown
    from sim.jobs.capturing.values import values_of
    from sim.jobs.recorded.file import write

    start = _start(script, arguments, module, code)
    _check(out, topology, advise or form.asked)
    ranks = _ranks(world, start)
    os.environ |= start.environment or {}
    click.echo(
        f"running {start.entry.name} on a fake GPU, rank {given['rank']} of {ranks}", err=True
    )
    try:
        with redirect_stdout(sys.stderr if topology else sys.stdout):  # only the answer on stdout
            recordings = capture_entry(
                start.entry,
                start.arguments,
                world=ranks,
                steps=_steps(step),
                values=values_of(values),
                samples=samples or 0,
                **given,
            )
    except InputError as error:
        if trace and error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
        raise
    except Exception as error:
        click.echo(shown(error, start.entry.folder), err=True, nl=False)
        raise click.exceptions.Exit(OWN_ERROR) from None
    if out is not None:
        write(recordings, out)
        wrote(out)
    if topology is None:
        _say(recordings)
        return
    if out is None:
        click.echo("note: the recording is not kept; --out record.json.gz writes it", err=True)
    named = {"stack": stack} if stack else {}
    scenario = _scenario(recordings, topology, {**named, **options.changes(settings, profiles)})
    answer = explain(scenario, advise=advise)
    if not form.as_json:
        click.echo(f"{answer.result}\n")
    form.show(answer)


def _start(
    script: str | None, arguments: tuple[str, ...], module: str | None, code: str | None
) -> "Started":
    """Return the script, its arguments and its launcher's ranks. Raises `InputError`."""
    from sim.jobs.capturing.entry import started

    words = [word for word in (script, *arguments) if word is not None]
    if module or code:
        words = ["python", "-m" if module else "-c", module or code or "", *words]
    if not words:
        raise InputError("sim capture", "no script", "name the script that trains the model")
    return started(words)


def _ranks(world: int | None, start: "Started") -> int:
    """Return the number of ranks of the job, and print a note if the launcher would start another
    number. Raises `InputError` if neither --world nor a launcher gives a number."""
    ranks = world or start.world
    if not ranks:
        raise InputError("sim capture", "no --world", "say how many ranks the whole job has")
    if start.world not in (0, ranks):
        told = f"note: the launcher would start {start.world:,} ranks; --world says {ranks:,}"
        click.echo(told, err=True)
    return ranks


def _check(out: Path | None, topology: str | None, asked: bool) -> None:
    """Raise `InputError`, before anything is captured, if the options cannot be answered."""
    from sim.config import catalog

    if out is None and topology is None:
        remedy = "name a file such as record.json.gz, or --on a cluster to play it on"
        raise InputError("sim capture", "no --out", remedy)
    if topology is not None:
        catalog.find("topologies", topology)
    elif asked:
        raise InputError("sim capture", "no cluster to play it on", "name it: --on dgx-h100-ndr")


def _scenario(
    recordings: "Sequence[Recording]", topology: str, changes: dict[str, object]
) -> "BaseScenario":
    from sim.interface.views.model import title
    from sim.jobs.recorded.setup import RecordedScenario
    from sim.kind import load

    name = f"{Path(recordings[0].script).stem}, {title(topology)}"
    return load(RecordedScenario(name=name, record=tuple(recordings), topology=topology), changes)


def _say(recordings: "Sequence[Recording]") -> None:
    for note in dict.fromkeys(note for recording in recordings for note in recording.notes):
        click.echo(f"note: {note}", err=True)
    for recording in recordings:
        click.echo(
            f"rank {recording.rank}: {len(recording.events):,} events, "
            f"{len(recording.operators):,} different operators, "
            f"{len(recording.groups)} process groups"
        )


def _steps(text: str | None) -> tuple[int, int] | None:
    """Return the first and the last step that a text names.

    >>> _steps("3"), _steps("10..14")
    ((3, 3), (10, 14))
    """
    if text is None:
        return None
    first, _, last = text.partition("..")
    if not (first.isdigit() and (last or first).isdigit()):
        raise InputError(f"--step {text}", "names no step", "write one such as 3 or 10..14")
    return int(first), int(last or first)
