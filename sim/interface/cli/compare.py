"""`sim compare` sets jobs side by side, and explains their differences."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from sim.interface.cli import options
from sim.interface.cli.files import Form, answers, output, wrote
from sim.interface.plots import SUFFIXES


@click.command(
    epilog=options.examples(
        "sim compare megatron-39b ': plan.schedule=zb-h1' --report both.html",
        "sim compare before.json after.json",
        "sim compare megatron-39b ': topology=dgx-h100-ndr' --tokens 500B --report costs.tex",
        "sim compare ps-async gossip-d-psgd --seeds 20 --curves losses.png",
    )
)
@click.argument("jobs", nargs=-1, required=True)
@options.of_scenario
@click.option(
    "--target", type=options.NUMBER, help="The loss that workers that share updates should reach."
)
@click.option("--tokens", type=options.NUMBER, help="Add the days and dollars that N tokens take.")
@click.option("--seeds", type=options.COUNT, default=1, help="Run each job with N seeds.")
@output("--curves", SUFFIXES, "Draw the losses of all seeds")
@options.METHOD
@options.TASK
@options.PRICE
@answers("Draw all jobs to one scale")
@options.LIMIT
def compare(
    jobs: tuple[str, ...],
    settings: tuple[str, ...],
    curves: Path | None,
    form: Form,
    **question: Any,
) -> None:
    """Compare JOBS with the first job: what differs, and why.

    A job is a scenario, or a scenario with settings of its own ('megatron-39b: plan.tp=4;
    plan.pp=4'). It may also be settings for the first scenario (': plan.tp=4'), or a result of `sim
    run --json` (FILE.json). --set applies to all scenarios. The exit code is 3 if no job fits into
    memory.
    """
    from sim.analysis.comparison.compare import compare as compared
    from sim.interface.plots.picture import save

    answer = compared(*jobs, settings=_of_all(settings, jobs), **question)
    if curves is not None:
        save(answer.plot("curves"), curves, form.width)
        wrote(curves)
    form.show(answer)


def _of_all(settings: tuple[str, ...], jobs: tuple[str, ...]) -> Iterator[str]:
    """Yield the settings that apply to all jobs. A method's Python file is left out if a job names
    that method itself."""
    from sim.questions import adopted

    for setting in settings:
        key, _, value = setting.partition("=")
        if key == "sharing.method" and value.endswith(".py"):
            methods = {f"{key}={name}" for key, name in adopted(value).items()}
            if not methods.isdisjoint(named for job in jobs for named in _methods_named(job)):
                continue
        yield setting


def _methods_named(job: str) -> Iterator[str]:
    """Yield the settings of a job, and the method in its scenario's file, as `KEY=VALUE`."""
    from sim.kind import document

    head, _, changes = (part.strip() for part in job.partition(":"))
    yield from (change.strip() for change in changes.split(";"))
    if head and "=" not in head and not head.endswith(".json"):
        sharing = document(head).get("sharing")
        if isinstance(sharing, dict) and "method" in sharing:
            yield f"sharing.method={sharing['method']}"
