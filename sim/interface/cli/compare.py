"""`sim compare`: jobs side by side, and where their differences come from."""

from pathlib import Path

import click

from sim.config import reads
from sim.config.reads import recorded
from sim.interface.cli import options
from sim.interface.cli.files import output, show, wrote
from sim.interface.plots import SUFFIXES


@click.command(
    epilog=options.examples(
        "sim compare megatron-39b ': plan.schedule=zb-h1' --report both.html",
        "sim compare before.json after.json",
        "sim compare ps-bsp ps-async --target 0.4 --picture losses.png",
    )
)
@click.argument("jobs", nargs=-1, required=True)
@options.SETTINGS
@click.option(
    "--target", type=options.NUMBER, help="The loss to reach, of workers that share updates."
)
@options.TASK
@options.PRICE
@output("--picture", SUFFIXES, "Draw all of them to one scale")
@output("--report", (".html",), "Write a page to look around in")
@options.LIMIT
@options.JSON
@recorded()  # a report shows what was read
def compare(
    jobs: tuple[str, ...],
    settings: tuple[str, ...],
    target: float | None,
    task: Path | None,
    price: str | None,
    picture: Path | None,
    report: Path | None,
    as_json: bool,
) -> None:
    """Hold JOBS against the first of them: what differs, and why.

    A job is a scenario, a scenario with settings of its own ('megatron-39b: plan.tp=4; plan.pp=4'),
    settings for the first scenario (': plan.tp=4'), or a result of `sim run --json` (FILE.json).
    --set is for all scenarios. The exit code is 3 where none of them fits into memory.
    """
    from sim.analysis.comparison.compare import compare as compared

    answer = compared(*jobs, settings=settings, price=price, target=target, task=task)
    if report is not None:
        from sim.config.files import atomic_write
        from sim.interface.page.comparison import page

        with atomic_write(report) as part:
            part.write_text(page(answer, reads.so_far()), encoding="utf-8")
        wrote(report)
    show(answer, as_json=as_json, picture=picture)
