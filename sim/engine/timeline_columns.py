"""Computations and transfers of a timeline as arrays."""

from collections.abc import Iterable, Iterator

from sim.engine.timeline import Columns, Played, Span, Timeline
from sim.program.causes import Cause
from sim.program.schedule import KINDS


def columns_of_spans(spans: Iterable[Span]) -> Columns:
    """The computations and transfers of spans as columns."""
    import numpy as np

    causes: dict[Cause, int] = {}
    rows = [
        (span.role, begin, end, computes, causes.setdefault(cause, len(causes)), *action)
        for span in spans
        for cause, begin, end, computes, action in _rows(span)
    ]
    table = np.array(rows, dtype=np.float64).reshape(-1, 8)
    whole = table[:, [0, 4, 5, 6, 7]].astype(np.intp)
    return Columns(
        role=whole[:, 0],
        begin=table[:, 1],
        end=table[:, 2],
        computes=table[:, 3] > 0,
        cause=whole[:, 1],
        actions=whole[:, 2:],
        causes=tuple(causes),
    )


def _rows(span: Span) -> Iterator[tuple[Cause, float, float, bool, tuple[int, int, int]]]:
    args, kind = span.args, span.args.get("phase", "")
    if "parts" in args or "phase" in args:
        of = (-1, -1, -1)
        if kind in KINDS:
            of = KINDS.index(kind), args.get("microbatch", -1), args.get("chunk", 0)
        yield span.cause, span.start, span.end, True, of
        return
    for cause, _, begin, end in args.get("transfers", ((span.cause, "", span.start, span.end),)):
        yield cause, begin, end, False, (-1, -1, -1)


def columns_of(timeline: Timeline) -> Columns:
    """The columns of a timeline; a played run makes them without its spans."""
    spans = timeline.spans
    return spans.columns if isinstance(spans, Played) else columns_of_spans(spans)
