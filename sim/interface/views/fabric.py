"""Show the profile of a fabric (network and collective library), and measured collectives."""

from collections.abc import Iterator, Sequence
from math import isnan
from pathlib import Path

from sim.analysis.calibration.evidence import Evidence, Source
from sim.collectives.libraries.profile import FOLDER, CollectiveResidual, find
from sim.config import catalog
from sim.config.errors import InputError
from sim.hardware.kernels.measurements import class_of
from sim.interface.document.nodes import Document, Sentence, Table, document, section, table
from sim.jobs.traces.operation_times import OperationTime
from sim.results.formatting import Cells
from sim.scenario.settings import flat

_LONGEST = 45  # characters of an operation's name that are printed
_HEAD = ("operation", "ranks", "nodes", "bytes", "us", "sigma", "n")


def is_fabric(name: str) -> bool:
    """Whether a name or a path is a fabric's profile.

    >>> is_fabric("dgx-a100-hdr")
    False
    """
    try:
        return "backend" in catalog.read(catalog.find(FOLDER, name))
    except InputError:
        return False


def view(name: str) -> Document:
    """Show the provenance, constants and errors of a fabric's profile. Raises `InputError`."""
    profile = find(name)
    assert profile is not None, "the caller has asked `is_fabric`"
    stated = [(key, str(value)) for key, value in profile.provenance.items() if value != ""]
    return document(
        f"{Path(name).stem}: collectives of {profile.backend}",
        table(stated),
        section("", table((path, str(value)) for path, value in flat(profile.constants))),
        section("", _errors(profile.residuals)),
    )


def judged(residuals: Sequence[CollectiveResidual]) -> Document:
    """Show the errors of a profile that was just fitted."""
    return document("", _errors(residuals))


def _errors(residuals: Sequence[CollectiveResidual]) -> Table:
    """Return a table of errors on sizes kept out of the fit: a row for each call and group."""
    rows = [
        (residual.name, str(residual.readings), f"{residual.median:.1%}", f"{residual.p95:.1%}",
         f"{residual.worst:.1%}", f"{residual.bias:+.1%}")
        for residual in residuals
    ]  # fmt: skip
    return table(rows, ("kept out of the fit", "n", "median", "p95", "worst", "bias"))


def readings(readings: Sequence[OperationTime], most: int = 40) -> Document:
    """Show at most `most` readings (measured times), each in a row."""
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


def evidence(evidence: Evidence) -> Document:
    """Show the times that traces measured: a row for each kind of kernel, for the host, and for
    each collective."""
    alone = evidence.collectives and len(evidence.sources) == 1
    return document(
        "",
        *(Sentence(_said(source)) for source in evidence.sources),
        table(_rows(evidence), ("", "sizes", "calls", "seconds")),
        Sentence("times of collectives include this rank's wait for others") if alone else None,
    )


def _said(source: Source) -> str:
    device = source.device or "a device that the file does not name"
    software = source.software or "software that the file does not name"
    slower = f"; the host also spent time on recording {', '.join(source.recorded)}"
    return f"{source.file}: {device}, {software}" + slower * bool(source.recorded)


def _rows(evidence: Evidence) -> Iterator[Cells]:
    kinds = {"gemm": "products", "attention": "attention", "stream": "memory-bound kernels"}
    for kind, name in kinds.items():
        each = [(m.seconds, n) for m, n in evidence.kernels if class_of(m.kernel) == kind]
        if each:
            yield _row(name, each)
    if evidence.host:
        yield _row("host, by operator", [(time.seconds, time.calls) for time in evidence.host])
    for operation in dict.fromkeys(time.operation for time in evidence.collectives):
        of = (time for time in evidence.collectives if time.operation == operation)
        yield _row(operation, [(time.seconds, time.samples) for time in of])


def _row(name: str, each: list[tuple[float, int]]) -> Cells:
    calls = sum(often for _, often in each)
    total = sum(seconds * often for seconds, often in each)
    return name, f"{len(each):,}", f"{calls:,}", f"{total:.3g}"
