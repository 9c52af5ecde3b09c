"""Readings: time, bytes and samples of each."""

from collections.abc import Sequence
from math import isnan

from sim.interface.document.nodes import Document, Sentence, document, table
from sim.jobs.traces.operation_times import OperationTime
from sim.results.formatting import Cells

_LONGEST = 45  # characters of an operation's name
_HEAD = ("operation", "ranks", "nodes", "bytes", "us", "sigma", "n")


def view(readings: Sequence[OperationTime], most: int = 40) -> Document:
    """At most so many readings, a row each."""
    left = len(readings) - most
    more = Sentence(f"and {left} more") if left > 0 else None
    return document("", table(map(_cells, readings[:most]), _HEAD), more)


def _cells(reading: OperationTime) -> Cells:
    operation = f"{reading.operation} {reading.name}".strip()[:_LONGEST]
    size = "" if isnan(reading.bytes) else f"{reading.bytes:,.0f}"
    sigma = "" if isnan(reading.sigma) else f"{reading.sigma:.3f}"
    micros = f"{1e6 * reading.seconds:,.1f}"
    return (
        operation,
        str(reading.ranks),
        str(reading.nodes),
        size,
        micros,
        sigma,
        str(reading.samples),
    )
