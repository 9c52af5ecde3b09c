"""Show clusters under a mix of jobs: a table, the steps of each job, the parts of each network."""

from collections.abc import Iterator, Sequence

from sim.analysis.networks.networks import JobStep, Network, Networks
from sim.config.readable import human_seconds
from sim.interface.document.nodes import Document, Picture, Sentence, document, section, table
from sim.results.formatting import Cells, percent, several
from sim.uncertainty.intervals import LEVEL

_UNKNOWN = "unknown"


def view(answer: Networks) -> Document:
    """Show the table of clusters, the steps by job, and each network's bill of materials."""
    mix = ", ".join(f"{job} {percent(share)}" for job, share in answer.weights.items())
    names = [network.name for network in answer.networks]
    steps = zip(*(network.steps for network in answer.networks), strict=True)
    return document(
        f"{several(len(names), 'network')}, of the devices' hours: {mix}",
        table((_row(network, answer) for network in answer.networks), tuple(_head(answer))),
        Sentence(_told(answer)),
        section("Expected step of each job",
                table(map(_steps, steps), ("job", "GPUs", *names))),
        section("Parts of each network", table(map(_bill, answer.networks), _BILL)),
        Picture(says="Hours of each job on each network", draw=answer.plot),
        *(Sentence(note, "note") for note in _notes(answer)),
        line=f"{answer.best} is the best of {len(names)} networks",
    )  # fmt: skip


def _head(answer: Networks) -> Iterator[str]:
    yield from ("network", "hours", f"{100 * LEVEL:.0f} %", "hashes", "slower than the best")
    yield from ("longer while failed",) if answer.failure else ()
    yield from (f"if failed {percent(answer.failing)} of the time",) if answer.failing else ()
    yield from ("tokens/$ of rent", "tokens/$ with network", "W a GPU", "fits")


_BILL = ("network", "GPUs", "switches", "by tier", "cables", "transceivers", "dollars")


def _row(network: Network, answer: Networks) -> Cells:
    slow = network.slowdown
    lost = [] if slow is None else [slow - 1.0, answer.failing * (slow - 1.0)]
    return (
        network.name,
        f"{network.hours:.4f}",
        f"{network.low:.3f} to {network.high:.3f}",
        f"+- {percent(network.spread)}" if network.spread else "-",
        _slower(network) if network.name != answer.best else "best",
        *map(_longer, lost if answer.failing else lost[:1]),
        _number(network.tokens_per_dollar),
        _number(network.tokens_per_dollar_with_network),
        _number(network.watts),
        _fits(network),
    )


def _fits(network: Network) -> str:
    """Return "yes" if all jobs fit into memory, "no" with the jobs that do not, or "unknown"."""
    full = [step.job for step in network.steps if step.fits is False]
    return f"no: {', '.join(full)}" if full else "yes" if network.fits else _UNKNOWN


def _number(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:,.0f}"


def _longer(share: float) -> str:
    """Return the share by which hours are longer, in percent.

    >>> _longer(0.12345), _longer(3e-6), _longer(0.0)
    ('+12.3 %', '+0.0003 %', '0 %')
    """
    return f"{100 * share:+.3g} %" if abs(share) > 1e-9 else "0 %"


def _slower(network: Network) -> str:
    """Return the chance that measured hours exceed the best network's, and bounds of the excess."""
    if network.sure is None or network.longer is None:
        return _UNKNOWN
    if network.longer == (0.0, 0.0):
        return "as long"
    low, high = (100.0 * share for share in network.longer)
    return f"{100 * network.sure:.0f} % sure, {low:+.1f} to {high:+.1f} %"


def _steps(steps: Sequence[JobStep]) -> Cells:
    gpus = sorted({step.gpus for step in steps})
    counts = f"{gpus[0]:,}" if len(gpus) == 1 else f"{gpus[0]:,} to {gpus[-1]:,}"
    return steps[0].job, counts, *(human_seconds(step.expected) for step in steps)


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
        _number(network.dollars),
    )


def _told(answer: Networks) -> str:
    told = "hours: time for the work that the first network does in an hour"
    if answer.failure:
        failure = ", ".join(f"{key} = {value}" for key, value in answer.failure.items())
        share = percent(answer.failing)
        within = f"in the hours for {share} of the time" if answer.failing else "not in the hours"
        told += f"; failure: {failure}, {within}"
    return f"{told}."


def _notes(answer: Networks) -> Iterator[str]:
    if any(network.bill is None for network in answer.networks):
        yield "numbers of switches are unknown without network.radix, the ports of a switch"
    if any(network.bill and network.dollars is None for network in answer.networks):
        yield (
            "a network's price follows from price.switch, price.cable and price.transceiver, which "
            "hold for the bandwidth and radix of the file that states them"
        )
    if any(network.tokens_per_dollar_with_network for network in answer.networks):
        yield (
            "with network: the rent plus the network's price, written off over price.network_years"
        )
    if any(network.tokens_per_dollar is None for network in answer.networks):
        yield 'a topology has no price; add --price "2 USD/h"'
    yield from answer.notes
