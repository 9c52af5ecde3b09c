"""A timeline as a table: a row for each piece of each span, so that seconds add up by cause."""

from collections.abc import Iterator
from operator import itemgetter

import pandas as pd

from sim.engine.timeline import Span, Timeline
from sim.program.causes import HOST, WAITING, Cause

_LEAST = 1e-9  # share of a span: a shorter lag is a rounding error
_NOT_IN_FRAME = ("parts", "transfers", "meetings", "facts")


def frame_of(timeline: Timeline) -> pd.DataFrame:
    """A row for each piece of each span. Columns are span (its number), role, stage, ranks, stream,
    name, cause, start, end, duration (s), and the span's args. Durations add up by `cause`. Bytes
    of a span are in the row of its last piece alone, so that they add up, too."""
    table = pd.DataFrame(
        {
            "span": number,
            "role": span.role,
            "stage": timeline.roles[span.role].stage,
            "ranks": timeline.roles[span.role].ranks,
            "stream": span.stream,
            "name": span.name,
            "cause": cause,
            "start": start,
            "end": end,
            "duration": end - start,
            **{key: value for key, value in span.args.items() if key not in _NOT_IN_FRAME},
        }
        for number, span in enumerate(timeline.spans)
        for cause, start, end in pieces(span)
    )
    for key in ("microbatch", "chunk"):
        if key in table:
            table[key] = table[key].where(table[key] >= 0).astype("Int64")
    if "bytes" in table:
        table["bytes"] = table["bytes"].mask(table.duplicated("span", keep="last"))
    return table


def pieces(span: Span) -> Iterator[tuple[Cause, float, float]]:
    """Yield each cause of a span with its beginning and end (s). The pieces add up to the span. A
    pass has the lag of its host as a piece, then its parts in turn. A communication has the wait
    before its transfers, then the transfers in the order in which they begin. A span that takes no
    time is a single piece.

    >>> from sim.program.causes import COMPUTE
    >>> flights = ((COMPUTE, "send", 2.0, 3.0), (COMPUTE, "send", 2.5, 4.0))
    >>> span = Span(0, "copy", "both", COMPUTE, 0.0, 4.0, {"transfers": flights})
    >>> [(str(cause), begin, end) for cause, begin, end in pieces(span)]
    [('waiting', 0.0, 2.0), ('compute', 2.0, 3.0), ('compute', 3.0, 4.0)]
    >>> list(pieces(Span(0, "copy", "nothing", COMPUTE, 1.0, 1.0))) == [(COMPUTE, 1.0, 1.0)]
    True
    """
    clock, parts = span.start, span.args.get("parts", ())
    lag = span.duration - sum(seconds for _, seconds in parts)
    found, end = [], span.start
    for cause, seconds in ((HOST, lag if lag > _LEAST * span.duration else 0.0), *parts):
        begin, end = end, end + seconds
        found.append((cause, begin, end))
    if not parts:
        flights = span.args.get("transfers") or ((span.cause, "", span.start, span.end),)
        found = [(cause, *when) for cause, _, *when in sorted(flights, key=itemgetter(2))]
    for cause, begin, end in found:
        if begin > clock:
            yield WAITING, clock, begin
        if (begin := max(begin, clock)) < end:
            yield cause, begin, end
            clock = end
    if not span.duration:
        yield span.cause, span.start, span.end
