"""`sim network` compares clusters under a mix of jobs."""

from functools import partial
from typing import Any

import click

from sim.interface.cli import options
from sim.interface.cli.files import Form, answers


@click.command(
    epilog=options.examples(
        "sim network dgx-h100-ndr 'dgx-h100-ndr: network.routing=ecmp' --job megatron-39b=3 "
        "--job llama3-8b-torchtitan",
        "sim network mine.toml --job megatron-39b --failure 'network.down=[[0,0]]' --report it.md",
    )
)
@click.argument("topologies", nargs=-1, required=True)
@click.option("--job", "jobs", multiple=True, required=True, metavar="SCENARIO[=WEIGHT]",
              help="A job and its share of the devices' hours; may be repeated.")  # fmt: skip
@click.option("--failure", multiple=True, metavar="KEY=VALUE",
              help="What fails, such as network.down=[[0,3]]; may be repeated.")  # fmt: skip
@click.option("--failing", type=options.SHARE, callback=lambda *given: given[-1] or 0.0,
              help="Share of the time in which --failure holds (for links that flap).")  # fmt: skip
@click.option("--seeds", type=click.IntRange(min=1), default=5, show_default=True, metavar="COUNT",
              help="How many hashes to try, if a network hashes connections to paths.")  # fmt: skip
@options.SETTINGS
@options.PRICE
@answers("Draw the hours of each job on each network")
@options.LIMIT
def network(jobs: tuple[str, ...], form: Form, **question: Any) -> None:
    """Compare TOPOLOGIES under a mix of jobs.

    The answer has hours, tokens for a dollar, watts, the effect of a failure, how sure the order
    is, and the parts of each network.

    A topology is a name or a file, or 'NAME: KEY=VALUE; KEY=VALUE' to change values. --set applies
    to all topologies. The exit code is 3 if the jobs fit into the memory of no topology.
    """
    from sim.analysis.networks.networks import networks

    told = partial(click.echo, err=True)
    form.show(networks(jobs=dict(map(_weighted, jobs)), told=told, **question))


def _weighted(text: str) -> tuple[str, float]:
    """Return a job and its weight.

    >>> _weighted("megatron-39b=3"), _weighted("mine.toml")
    (('megatron-39b', 3.0), ('mine.toml', 1.0))
    """
    name, equals, weight = text.rpartition("=")
    if not equals:
        return text, 1.0
    return name, float(options.NUMBER.convert(weight, None, None))
