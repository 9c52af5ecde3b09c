"""`sim diff`: which lines of a script cost more than they did."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import click

from sim.interface.cli import options
from sim.interface.cli.files import Form, answers

SLOWER = 4  # the exit code of a step that is slower than is allowed


@click.command(
    epilog=options.examples(
        "sim diff before.json.gz after.json.gz --topology dgx-h100-ndr",
        "sim diff main.json.gz branch.json.gz --topology dgx-h100-ndr --fail-if-slower 3%",
    )
)
@click.argument("before")
@click.argument("after")
@options.of_job
@options.PROFILES
@click.option(
    "--fail-if-slower",
    "allowed",
    type=options.SHARE,
    metavar="SHARE",
    help="Exit with 4 where the step is longer by more than this share, such as 3%.",
)
@answers("Draw the lines that differ")
@options.LIMIT
def diff(
    before: str,
    after: str,
    named: Mapping[str, Any],
    settings: tuple[str, ...],
    profiles: tuple[str, ...],
    allowed: float | None,
    form: Form,
) -> None:
    """Hold a recording AFTER a change against that BEFORE it.

    The two steps, and the lines of the script that cost more or less: seconds of kernels, bytes
    sent, bytes held. The exit code is 3 where the later one does not fit into memory, and 4 where
    its step is slower than --fail-if-slower allows.
    """
    from sim.analysis.comparison.lines import diff as compared

    first, second = (
        options.scenario_of(name, settings, profiles, named) for name in (before, after)
    )
    answer = compared(first, second)
    if allowed is None or answer.slower <= allowed:
        form.show(answer)
        return
    with suppress(click.exceptions.Exit):  # whatever its memory, the step is slower
        form.show(answer)
    was, now = (f"{1e3 * seconds:.1f} ms" for seconds in answer.step_times)
    worst = [f"{own.after or own.before} {1e3 * own.seconds:+.1f} ms" for own in answer.lines[:3]]
    told = f"slower: {was} -> {now} ({answer.slower:+.1%}, {allowed:.1%} allowed)"
    click.echo("; ".join(filter(None, (told, ", ".join(worst)))), err=True)
    raise click.exceptions.Exit(SLOWER)
