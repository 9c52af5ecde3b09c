"""Measured collectives on a fabric, to which the constants of collective libraries are fitted."""

from collections.abc import Iterable, Sequence
from math import sqrt

from sim.collectives.interconnect import CollectiveCall, Interconnect
from sim.collectives.schedule import KINDS, GroupShape, kind_named
from sim.config.dataclass import dataclass
from sim.config.grouped import grouped
from sim.jobs.traces.operation_times import OperationTime

# Wires that cost no time, so all the time of a gloo call over loopback counts as gloo's own.
NO_WIRES = Interconnect(generation="cpu", gpus_per_node=1 << 20, port_bandwidth=1e18)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCollective(CollectiveCall):
    """A call that took `time` seconds; calls of one sweep of sizes have the same `table`."""

    table: str
    time: float


def from_readings(
    readings: Iterable[OperationTime], interconnect: Interconnect
) -> list[MeasuredCollective]:
    """Return the collectives of several ranks that were timed in a single group.

    If a collective was timed several times, the shortest time counts, as with kernels. Other work
    of the machine can only lengthen a call. On shared cores, a call may wait for a time slice of
    the scheduler (3 ms).
    """
    passes = grouped(
        ((own.operation, own.ranks, own.nodes, own.bytes), own.seconds)
        for own in readings
        if own.operation in KINDS and own.ranks > 1 and own.groups == 1 and own.bytes > 0
    )
    return [
        MeasuredCollective(
            table=_table(kind, ranks, nodes),
            kind=kind_named(kind, "readings"),
            size=size,
            shape=GroupShape(ranks=ranks, nodes=nodes),
            interconnect=interconnect,
            time=min(times),
        )
        for (kind, ranks, nodes, size), times in sorted(passes.items())
    ]


def _table(kind: str, ranks: int, nodes: int) -> str:
    """Return the name of a sweep of sizes.

    >>> _table("all_reduce", 16, 2)
    'all_reduce among 16 on 2 nodes'
    """
    return f"{kind} among {ranks}" + (f" on {nodes} nodes" if nodes > 1 else "")


def tables(collectives: Iterable[MeasuredCollective]) -> tuple[str, ...]:
    """Return the names of the collectives' tables, in order."""
    return tuple(dict.fromkeys(collective.table for collective in collectives))


def alternate(collectives: Sequence[MeasuredCollective], first: int) -> list[MeasuredCollective]:
    """Return the readings at every other size of their table, from the size numbered `first` on."""
    sizes: dict[str, set[float]] = {}
    for collective in collectives:
        sizes.setdefault(collective.table, set()).add(collective.size)
    kept = {table: set(sorted(of_table)[first::2]) for table, of_table in sizes.items()}
    return [collective for collective in collectives if collective.size in kept[collective.table]]


def jitter(readings: Iterable[OperationTime]) -> str:
    """Return a `[jitter]` table from readings with several samples; empty if there are none.

    The square of the lognormal's sigma is the mean of the readings' variances, each weighted by its
    number of samples minus one.

    >>> reading = OperationTime(operation="broadcast", seconds=1e-5, ranks=2, samples=5, sigma=0.02)
    >>> print(jitter([reading, reading]))
    [[jitter.cause]]
    name = "collectives"
    kind = "lognormal"
    sigma = 0.02
    """
    scattered = [
        reading
        for reading in readings
        if reading.samples > 1 and reading.sigma > 0 and reading.operation in KINDS
    ]
    freedom = sum(reading.samples - 1 for reading in scattered)
    if not freedom:
        return ""
    sigma = sqrt(sum((r.samples - 1) * r.sigma**2 for r in scattered) / freedom)
    lines = ("[[jitter.cause]]", 'name = "collectives"', 'kind = "lognormal"')
    return "\n".join([*lines, f"sigma = {sigma:.3g}"])
