"""A collective's times as nccl-tests prints them."""

from sim.analysis.collectives.times import CollectiveTime, CollectiveTimes
from sim.config.units import human_bytes, human_seconds
from sim.results.formatting import several
from sim.results.tables import aligned, preformatted


def text(times: CollectiveTimes) -> str:
    """The columns of nccl-tests, what the library would choose, and its busiest links."""
    head = ("size", "count", "algorithm", "protocol", "time", "algbw", "busbw", "")
    units = ("(B)", "(elements)", "", "", "(us)", "(GB/s)", "(GB/s)", "")
    table = aligned([head, units, *map(_cells, times.rows)], headed=True)
    links = ", ".join(f"{name} {share:.0%}" for name, share in times.choice.links.items())
    return (
        f"{title(times)}, out of place\n"
        f"{table}\n* what the library would choose; its links allow a bus bandwidth of "
        f"{1e-9 * times.bound:.4g} GB/s\n"
        f"busiest links at {human_bytes(times.choice.size)}: {links}"
    )


def html(times: CollectiveTimes) -> str:
    """The same for a notebook."""
    return preformatted(text(times))


def title(times: CollectiveTimes) -> str:
    """What was done where, and who came late."""
    late = ", ".join(f"rank {rank} {human_seconds(own)} late" for rank, own in times.late.items())
    where = f"{times.kind} on {several(times.gpus, 'GPU')} of {times.topology.name}"
    return f"{where}, {late}" if late else where


def _cells(row: CollectiveTime) -> tuple[str, ...]:
    rates = (f"{1e-9 * rate:.2f}" for rate in (row.algbw, row.busbw))
    count, time = f"{row.count}", f"{1e6 * row.seconds:.2f}"
    return (
        f"{row.size:.0f}", count, row.algorithm, row.protocol, time, *rates,
        "*" if row.chosen else "",
    )  # fmt: skip
