"""What happened, when, on which stream of which role: the timeline that every picture reads."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, overload

from sim.program.causes import Cause

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """Ranks that cannot be told apart, simulated once; `ranks` of them, the lowest `first_rank`.

    `pieces` says which piece of the model each of their chunks is.
    """

    index: int
    name: str
    stage: int
    ranks: int
    first_rank: int
    slowdown: float = 1.0
    pieces: tuple[int, ...] = (0,)


@dataclass(frozen=True, slots=True)
class Span:
    """One operation of one role on one stream, from `start` to `end` (s).

    `args` of a pass: phase, microbatch, chunk and `parts`, seconds by cause that add up to it;
    of a communication: kind, bytes, ranks, algorithm, protocol.
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


class Deferred(Sequence[Span]):
    """Spans that are written down when somebody first asks for them."""

    def __init__(self, write: Callable[[], Sequence[Span]]) -> None:
        self._write = write
        self._spans: Sequence[Span] | None = None

    @property
    def spans(self) -> Sequence[Span]:
        """The spans, now written down."""
        if self._spans is None:
            self._spans = self._write()
        return self._spans

    @overload
    def __getitem__(self, index: int) -> Span: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Span]: ...
    def __getitem__(self, index: int | slice) -> Span | Sequence[Span]:
        return self.spans[index]

    def __len__(self) -> int:
        return len(self.spans)

    def __iter__(self) -> Iterator[Span]:
        return iter(self.spans)

    def __reduce__(self) -> tuple[type[list[Span]], tuple[list[Span]]]:
        return list, (list(self.spans),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """All spans of one run, in order of their start within each role and stream."""

    roles: tuple[Role, ...]
    spans: Sequence[Span]
    end: float
    events: int = 0

    def to_frame(self) -> "pd.DataFrame":
        """One row a span: role, stage, ranks, stream, name, cause, start, end, duration, args."""
        import pandas as pd

        return pd.DataFrame(
            {
                "role": span.role,
                "stage": self.roles[span.role].stage,
                "ranks": self.roles[span.role].ranks,
                "stream": span.stream,
                "name": span.name,
                "cause": span.cause,
                "start": span.start,
                "end": span.end,
                "duration": span.duration,
                **{key: value for key, value in span.args.items() if key != "parts"},
            }
            for span in self.spans
        )
