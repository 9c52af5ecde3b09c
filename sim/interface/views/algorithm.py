"""A collective algorithm: the collectives that it offers, their rounds and their bytes."""

from sim.collectives.fluid import condense
from sim.collectives.schedule import CollectiveSchedule, algorithms, offered
from sim.interface.document.nodes import Document, document, table
from sim.results.formatting import several


def is_algorithm(name: str) -> bool:
    """Whether a module of `sim.collectives.algorithms` has that name."""
    return name in algorithms()


def schedules(name: str, ranks: int) -> list[CollectiveSchedule]:
    """The collectives that an algorithm offers, among so many ranks."""
    module = algorithms()[name]
    return [getattr(module, kind)(ranks) for kind in offered(module)]


def view(name: str, ranks: int) -> Document:
    """A line a collective: dependent rounds, and bytes of the busiest port.

    >>> from sim.interface.document.terminal import text
    >>> print(text(view("tree", 4)))
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
