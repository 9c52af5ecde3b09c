"""Clusters under a mix of jobs: one table, the steps of each job, what a network is built of."""

from collections.abc import Iterator, Sequence

from sim.analysis.networks.networks import JobStep, Network, Networks
from sim.config.units import human_seconds
from sim.interface.document.nodes import Document, Picture, Sentence, document, section, table
from sim.results.formatting import Cells, percent
from sim.uncertainty.intervals import LEVEL

_UNKNOWN = "unknown"


def view(answer: Networks) -> Document:
    """The table of clusters, best first named, steps by job, the bill of materials."""
    mix = ", ".join(f"{job} {percent(share)}" for job, share in answer.weights.items())
    names = [network.name for network in answer.networks]
    steps = zip(*(network.steps for network in answer.networks), strict=True)
    return document(
        f"{len(names)} networks, of the devices' hours: {mix}",
        table((_row(network, answer.best) for network in answer.networks), _HEAD),
        Sentence(_told(answer)),
        section("Expected step of each job",
                table(map(_steps, steps), ("job", *names))),
        section("What it is built of", table(map(_bill, answer.networks), _BILL)),
        Picture(says="Hours of each job on each network", draw=answer.plot),
        *(Sentence(note, "note") for note in _notes(answer)),
        line=f"{answer.best} is the best of {len(names)} networks",
    )  # fmt: skip


_HEAD = ("network", "hours", f"{100 * LEVEL:.0f} %", "hashes", "slower than the best", "failure",
         "tokens/$", "W a GPU", "fits")  # fmt: skip
_BILL = ("network", "GPUs", "switches", "by tier", "cables", "transceivers", "dollars")


def _row(network: Network, best: str) -> Cells:
    slow, tokens = network.slowdown, network.tokens_per_dollar
    return (
        network.name,
        f"{network.hours:.4f}",
        f"{network.low:.3f} to {network.high:.3f}",
        f"+- {percent(network.spread)}" if network.spread else "-",
        _slower(network) if network.name != best else "best",
        "-" if slow is None else f"{100 * (slow - 1):+.2f} %",
        _UNKNOWN if tokens is None else f"{tokens:,.0f}",
        _UNKNOWN if network.watts is None else f"{network.watts:,.0f}",
        {True: "yes", False: "no", None: _UNKNOWN}[network.fits],
    )


def _slower(network: Network) -> str:
    """How sure it is that measured hours are longer than on the best, and by how much."""
    if network.sure is None or network.longer is None:
        return _UNKNOWN
    low, high = (100.0 * share for share in network.longer)
    return f"{100 * network.sure:.0f} % sure, {low:+.1f} to {high:+.1f} %"


def _steps(steps: Sequence[JobStep]) -> Cells:
    return steps[0].job, *(human_seconds(step.expected) for step in steps)


def _bill(network: Network) -> Cells:
    bill = network.bill
    if bill is None:
        return network.name, f"{network.gpus:,}", *[_UNKNOWN] * 5
    return (
        network.name,
        f"{network.gpus:,}",
        f"{sum(bill.switches):,}",
        " + ".join(f"{count:,}" for count in bill.switches) or "-",
        f"{bill.cables:,}",
        f"{bill.transceivers:,}",
        _UNKNOWN if network.dollars is None else f"{network.dollars:,.0f}",
    )


def _told(answer: Networks) -> str:
    told = "hours: for the work of an hour on the first"
    if answer.failure:
        failure = ", ".join(f"{key} = {value}" for key, value in answer.failure.items())
        told += f"; failure: {failure}"
        told += f", {percent(answer.failing)} of the time" if answer.failing else ""
    return f"{told}."


def _notes(answer: Networks) -> Iterator[str]:
    if any(network.bill is None for network in answer.networks):
        yield "switches are counted from network.radix, the ports of a switch"
    if any(network.bill and network.dollars is None for network in answer.networks):
        yield "a network's price follows from price.switch, price.cable and price.transceiver"
    if any(network.tokens_per_dollar is None for network in answer.networks):
        yield 'a topology has no price; add --price "2 USD/h"'
    yield from answer.notes
