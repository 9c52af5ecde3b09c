"""Show a collective's times as nccl-tests prints them."""

from collections.abc import Iterator

from sim.analysis.collectives.times import CollectiveTime, CollectiveTimes
from sim.collectives.algorithms.direct import AT_ONCE
from sim.collectives.libraries.nccl import LL_OF_PEERS
from sim.collectives.readings import condense
from sim.collectives.schedule import CollectiveSchedule, algorithms, offered
from sim.config.readable import human_bytes, human_seconds
from sim.interface.document.nodes import Document, Sentence, document, table
from sim.results.formatting import Cells, several

_HEAD = (
    "size (B)", "count", "algorithm", "protocol", "time (us)", "algbw (GB/s)", "busbw (GB/s)", "",
)  # fmt: skip


def view(times: CollectiveTimes) -> Document:
    """Show the columns of nccl-tests, the library's choice, and its busiest links."""
    links = ", ".join(f"{name} {share:.0%}" for name, share in times.choice.links.items())
    return document(
        f"{title(times)}, out of place",
        table(map(_cells, times.rows), _HEAD),
        Sentence(
            "* the library's choice; the links allow a bus bandwidth of "
            f"{1e-9 * times.bound:.4g} GB/s"
        ),
        Sentence(f"busiest links at {human_bytes(times.choice.size)}: {links}"),
        *(Sentence(note, "note") for note in _jump(times)),
    )


def _jump(times: CollectiveTimes) -> Iterator[str]:
    """Say between which sizes grouped sends change their protocol, and why times jump there."""
    small, large = (
        [row.size for row in times.rows if (row.algorithm, row.protocol) == ("direct", protocol)]
        for protocol in ("ll", "simple")
    )
    if small and large:
        span = f"{human_bytes(max(small))} and {human_bytes(min(large))}"
        yield (
            f"times jump between {span}: NCCL sends up to {human_bytes(LL_OF_PEERS)} to a peer in "
            "LL (NCCL_P2P_LL_THRESHOLD), larger messages in Simple; it serves "
            f"{AT_ONCE} peers in a step, which takes longer in Simple"
        )


def title(times: CollectiveTimes) -> str:
    """Name the collective, its cluster and its late ranks."""
    late = ", ".join(f"rank {rank} {human_seconds(by)} late" for rank, by in times.late.items())
    where = f"{times.kind} on {several(times.gpus, 'GPU')} of {times.topology.name}"
    return f"{where}, {late}" if late else where


def _cells(row: CollectiveTime) -> Cells:
    rates = (f"{1e-9 * rate:.2f}" for rate in (row.algbw, row.busbw))
    time = f"{1e6 * row.seconds:.2f}"
    return (
        f"{row.size:.0f}", f"{row.count}", row.algorithm, row.protocol, time, *rates,
        "*" if row.chosen else "",
    )  # fmt: skip


def is_algorithm(name: str) -> bool:
    """Whether a module of `sim.collectives.algorithms` has this name."""
    return name in algorithms()


def schedules(name: str, ranks: int) -> list[CollectiveSchedule]:
    """Return the schedules of all collectives that an algorithm offers, among `ranks` ranks."""
    module = algorithms()[name]
    return [getattr(module, kind)(ranks) for kind in offered(module)]


def algorithm(name: str, ranks: int) -> Document:
    """Show, for each collective, its dependent rounds and the bytes of the busiest port.

    >>> from sim.interface.document.terminal import text
    >>> print(text(algorithm("tree", 4)))
    tree among 4 ranks, for each byte of the buffer
      all_reduce  7 rounds  2 B through the busiest port
      broadcast   6 rounds  1 B through the busiest port
      reduce      6 rounds  1 B through the busiest port
    """
    rows = []
    for schedule in schedules(name, ranks):
        fluid = condense(schedule)
        busiest = f"{fluid.bytes:.3g} B through the busiest port"
        rows.append((schedule.kind, several(fluid.rounds, "round"), busiest))
    return document(f"{name} among {ranks} ranks, for each byte of the buffer", table(rows))
