"""Draw the hours of a mix of jobs on each network, by job, without and with the failure."""

from collections.abc import Sequence

from sim.analysis.networks.networks import Networks
from sim.config.errors import InputError
from sim.engine.link_loads import LinkLoad
from sim.interface.plots import topology
from sim.interface.plots.picture import PALETTE, Figure
from sim.results.result import Result


def figure(answer: Networks) -> Figure:
    """Draw a bar for each network, divided by job, with the interval of the sum, and a mark for the
    hours with the failure."""
    rows = list(range(len(answer.networks)))
    fig = Figure(figsize=(9.0, 1.8 + 0.75 * len(rows)), layout="constrained")
    axes = fig.subplots()
    first = answer.networks[0].steps
    left = [0.0 for _ in rows]
    for number, (job, share) in enumerate(answer.weights.items()):
        scale = share / first[number].expected
        parts = [scale * network.steps[number].expected for network in answer.networks]
        axes.barh(rows, parts, left=left, color=PALETTE[number % len(PALETTE)], label=job)
        left = [a + b for a, b in zip(left, parts, strict=True)]
    reach = [
        [n.hours - n.low for n in answer.networks],
        [n.high - n.hours for n in answer.networks],
    ]
    axes.errorbar(left, rows, xerr=reach, fmt="none", ecolor="#333333", capsize=3)
    failed = [(n.failed, row) for row, n in enumerate(answer.networks) if n.failed is not None]
    if failed:
        xs, ys = zip(*failed, strict=True)
        axes.plot(xs, ys, "|", color="#d62728", ms=18, mew=2.5, label="with the failure")
    names = [network.name.replace(": ", ":\n").replace("; ", "\n") for network in answer.networks]
    axes.set_yticks(rows, names, parse_math=False)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlabel("hours for the work of an hour on the first network")
    fig.legend(loc="outside upper center", ncols=3, frameon=False)
    return fig


def loads(result: Result) -> Figure:
    """Draw the cluster with cables in the colour of the busiest link of their kind. Raises
    `InputError` for a result without its setup."""
    if result.setup is None:
        fault = "does not say what was simulated"
        raise InputError(result.scenario, fault, "run its scenario again")
    return topology.figure(result.setup.machine.topology, busiest(result.links))


def busiest(loads: Sequence[LinkLoad]) -> dict[str, float]:
    """Return the busy share of the time of the busiest link of each kind."""
    shares: dict[str, float] = {}
    for load in loads:
        shares[load.kind] = max(shares.get(load.kind, 0.0), load.busy)
    return shares
