"""The timeline that every picture reads: when each operation ran, on which stream of which role."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar, overload

from sim.config.dataclass import dataclass
from sim.program.actions import KINDS
from sim.program.causes import HOST, WAITING, Cause

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

Row = TypeVar("Row")

_LEAST = 1e-9  # of a span: a shorter lag is rounding
_NOT_IN_FRAME = ("parts", "transfers", "meetings")


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """Ranks that cannot be told apart, simulated once; `ranks` of them, the lowest `first_rank`.

    `pieces` says which piece of the model each of their chunks is, `coordinates` where the lowest
    rank lies along each axis.
    """

    index: int
    name: str
    stage: int
    ranks: int
    first_rank: int
    slowdown: float = 1.0
    pieces: tuple[int, ...] = (0,)
    coordinates: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Span:
    """One operation of one role on one stream, from `start` to `end` (s).

    `args` of a pass: phase, microbatch, chunk and `parts`, seconds by cause that add up to it;
    of a communication: kind, bytes, ranks, algorithm, protocol, and of its `transfers` as many
    `meetings`: the number that all who take part know it by, and the way that a message goes.
    """

    role: int
    stream: str
    name: str
    cause: Cause
    start: float
    end: float
    args: dict[str, Any] = field(default_factory=dict)

    @property
    def duration(self) -> float:
        return self.end - self.start

    def pieces(self) -> Iterator[tuple[Cause, float, float]]:
        """Each cause with its beginning and end (s). Pieces add up to the span. A pass is the lag
        of its host, then its parts one after another. A communication is the waiting before its
        transfers, then the transfers in the order in which they begin.

        >>> from sim.program.causes import COMPUTE
        >>> flights = ((COMPUTE, "send", 2.0, 3.0), (COMPUTE, "send", 2.5, 4.0))
        >>> span = Span(0, "copy", "both", COMPUTE, 0.0, 4.0, {"transfers": flights})
        >>> [(str(cause), begin, end) for cause, begin, end in span.pieces()]
        [('waiting', 0.0, 2.0), ('compute', 2.0, 3.0), ('compute', 3.0, 4.0)]
        """
        clock, parts = self.start, self.args.get("parts", ())
        lag = self.duration - sum(seconds for _, seconds in parts)
        found, end = [], self.start
        for cause, seconds in ((HOST, lag if lag > _LEAST * self.duration else 0.0), *parts):
            begin, end = end, end + seconds
            found.append((cause, begin, end))
        if not parts:
            flights = self.args.get("transfers") or ((self.cause, "", self.start, self.end),)
            found = [(cause, *when) for cause, _, *when in sorted(flights, key=itemgetter(2))]
        for cause, begin, end in found:
            if begin > clock:
                yield WAITING, clock, begin
            if (begin := max(begin, clock)) < end:
                yield cause, begin, end
                clock = end


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """All that ran, a row each: a computation from `begin` to `end` (s), or a transfer from when it
    began, without the waiting before it.

    `cause` is a row's place in `causes`, `actions` [rows, 3] the pass that it belongs to: kind (its
    place in `KINDS`), microbatch and chunk, -1 of none.
    """

    role: "NDArray[np.intp]"
    begin: "NDArray[np.float64]"
    end: "NDArray[np.float64]"
    computes: "NDArray[np.bool_]"
    cause: "NDArray[np.intp]"
    actions: "NDArray[np.intp]"
    causes: tuple[Cause, ...]


def columns_of(spans: Iterable[Span]) -> Columns:
    """Spans in columns."""
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


@dataclass(frozen=True, slots=True, eq=False)
class Rate:
    """A rate over the step: `values` a second hold from each of the `times` (s) on.

    `of` says what, in the unit `unit`; it is one role's, or the whole machine's (None).
    """

    role: int | None
    of: str
    unit: str
    times: "NDArray[np.float64]"
    values: "NDArray[np.float64]"


class Deferred(Sequence[Row]):
    """Rows that are written down when somebody first asks for them."""

    def __init__(self, write: Callable[[], Sequence[Row]]) -> None:
        self._write = write

    @cached_property
    def rows(self) -> Sequence[Row]:
        """The rows, now written down."""
        return self._write()

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __reduce__(self) -> tuple[type[list[Row]], tuple[list[Row]]]:
        return list, (list(self.rows),)


class Played(Deferred[Span]):
    """Spans of a run whose `columns` are known without them."""

    def __init__(self, write: Callable[[], Sequence[Span]], columns: Callable[[], Columns]) -> None:
        super().__init__(write)
        self._columns = columns

    @cached_property
    def columns(self) -> Columns:
        """The same in columns."""
        return self._columns()


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """All spans of one run, in order of their start within each role and stream; `step` is the time
    of a step where that is not the `end` (`Program.apart`). `rates` say how busy devices and links
    are."""

    roles: tuple[Role, ...]
    spans: Sequence[Span]
    end: float
    events: int = 0
    step: float | None = None
    rates: Sequence[Rate] = ()

    @property
    def columns(self) -> Columns:
        """What ran when, in arrays; where spans are not yet written down, they stay so."""
        return self.spans.columns if isinstance(self.spans, Played) else columns_of(self.spans)

    def to_frame(self) -> "pd.DataFrame":
        """A row for each piece of each span (`Span.pieces`), so that durations add up by `cause`:
        number of the span, role, stage, ranks, stream, name, cause, start, end, duration, args."""
        import pandas as pd

        frame = pd.DataFrame(
            {
                "span": number,
                "role": span.role,
                "stage": self.roles[span.role].stage,
                "ranks": self.roles[span.role].ranks,
                "stream": span.stream,
                "name": span.name,
                "cause": cause,
                "start": start,
                "end": end,
                "duration": end - start,
                **{key: value for key, value in span.args.items() if key not in _NOT_IN_FRAME},
            }
            for number, span in enumerate(self.spans)
            for cause, start, end in span.pieces()
        )
        for key in ("microbatch", "chunk"):
            if key in frame:
                frame[key] = frame[key].where(frame[key] >= 0).astype("Int64")
        return frame
