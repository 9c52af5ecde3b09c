"""`sim explain` says what limits a step, and what would make it shorter."""

from collections.abc import Mapping
from typing import Any

import click

from sim.interface.cli import options
from sim.interface.cli.files import Form, answers


@click.command(
    epilog=options.examples(
        "sim explain megatron-39b --picture limits.png",
        "sim explain megatron-39b --set plan.schedule=zb-h1",
        "sim explain record.json.gz --topology dgx-h100-ndr --advise",
    )
)
@click.argument("scenario", required=False)
@options.of_job
@options.PROFILES
@click.option("--advise", is_flag=True, help="Try changes of a recorded script, and rank them.")
@answers()
@options.LIMIT
def explain(
    scenario: str | None,
    named: Mapping[str, Any],
    settings: tuple[str, ...],
    profiles: tuple[str, ...],
    advise: bool,
    form: Form,
) -> None:
    """Say what limits a step of SCENARIO, and what would help.

    The answer has the gain from a faster version of each resource, and sets kernels beside the
    device's peaks. It also has the best changes of a single choice of the plan, or with --advise of
    the lines of a recorded script. The exit code is 3 if the job does not fit into memory.
    """
    from sim.analysis.explanation.explain import explain as explained

    answer = explained(options.scenario_of(scenario, settings, profiles, named), advise=advise)
    form.show(answer)
