"""A collective's times as nccl-tests prints them."""

from sim.analysis.collectives.times import CollectiveTime, CollectiveTimes
from sim.config.units import human_bytes, human_seconds
from sim.interface.document.nodes import Document, Sentence, document, table
from sim.results.formatting import Cells, several

_HEAD = (
    "size (B)", "count", "algorithm", "protocol", "time (us)", "algbw (GB/s)", "busbw (GB/s)", "",
)  # fmt: skip


def view(times: CollectiveTimes) -> Document:
    """The columns of nccl-tests, what the library would choose, and its busiest links."""
    links = ", ".join(f"{name} {share:.0%}" for name, share in times.choice.links.items())
    return document(
        f"{title(times)}, out of place",
        table(map(_cells, times.rows), _HEAD),
        Sentence(
            "* what the library would choose; its links allow a bus bandwidth of "
            f"{1e-9 * times.bound:.4g} GB/s"
        ),
        Sentence(f"busiest links at {human_bytes(times.choice.size)}: {links}"),
    )


def title(times: CollectiveTimes) -> str:
    """The collective and its cluster, and its late ranks."""
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
