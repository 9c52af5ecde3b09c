"""`sim diff` finds the lines of a training script that cost more than before a change."""

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from sim.config.errors import InputError
from sim.interface.cli import options
from sim.interface.cli.files import Form, answers

if TYPE_CHECKING:
    from sim.analysis.comparison.lines import LineDifferences

_WORST = 4  # causes and lines that the message about a slower step names
SLOWER = 4  # the exit code if a step is slower than --fail-if-slower allows


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
    type=options.SHARE_OR_NONE,
    metavar="SHARE",
    help="Exit with code 4 if the step is longer by more than this share, such as 3%.",
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
    """Compare a recording AFTER a change with the recording BEFORE it.

    The answer has the two steps, and the lines of the script that cost more or less: seconds of
    kernels, bytes sent, bytes held. The exit code is 3 if AFTER does not fit into memory, and 4 if
    its step is slower than --fail-if-slower allows.
    """
    from sim.analysis.comparison.lines import diff as compared

    first, second = (
        options.scenario_of(name, settings, profiles, named) for name in (before, after)
    )
    answer = compared(first, second)
    if allowed is not None and answer.incomparable:
        fault = ", ".join(
            f"{name} {old} -> {new}" for name, (old, new) in answer.incomparable.items()
        )
        remedy = "record both alike, or leave --fail-if-slower out"
        raise InputError("--fail-if-slower", f"the recordings are unlike: {fault}", remedy)
    if allowed is None or answer.slower <= allowed:
        form.show(answer)
        return
    with suppress(click.exceptions.Exit):  # code 4, even if memory asks for code 3
        form.show(answer)
    click.echo(_slower(answer, allowed), err=True)
    raise click.exceptions.Exit(SLOWER)


def _slower(answer: "LineDifferences", allowed: float) -> str:
    """Return a line for a log: both steps, and the causes and lines that add the most time."""
    from sim.analysis.comparison.lines import SAMPLES

    was, now = (f"{1e3 * seconds:.1f} ms" for seconds in answer.step_times)
    alike = " for as many samples" if SAMPLES in answer.unlike else ""
    said = f"slower: {was} -> {now} ({answer.slower:+.1%}{alike}, {allowed:.1%} allowed)"
    if alike:  # seconds of causes and lines are those of whole steps
        return said
    worst = {**answer.causes, **{line.after or line.before: line.seconds for line in answer.lines}}
    least = 1e-3 * answer.step_times[0]
    named = [f"{name} {1e3 * more:+.1f} ms" for name, more in worst.items() if more > least]
    return "; ".join(filter(None, (said, ", ".join(named[:_WORST]))))
