"""What traces measured of a device: what was read, from how many calls, on which software."""

from collections.abc import Iterator

from sim.analysis.calibration.evidence import Evidence, Source
from sim.hardware.kernels.measurements import class_of
from sim.interface.document.nodes import Document, Sentence, document, table
from sim.results.formatting import Cells


def view(evidence: Evidence) -> Document:
    """A row for each kind of kernel, for the host and for each kind of collective."""
    alone = evidence.collectives and len(evidence.sources) == 1
    return document(
        "",
        *(Sentence(_said(source)) for source in evidence.sources),
        table(_rows(evidence), ("", "sizes", "calls", "seconds")),
        Sentence("collectives of a single rank: with its wait for the others") if alone else None,
    )


def _said(source: Source) -> str:
    device = source.device or "a device that it does not name"
    software = source.software or "software that it does not name"
    slower = f"; recording {', '.join(source.recorded)} took the host time, too"
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
