"""The timeline that every picture reads: when each operation ran, on which stream of which role."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, overload

from sim.program.causes import Cause

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

Row = TypeVar("Row")

_NOT_IN_FRAME = ("parts", "meetings")


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
                **{key: value for key, value in span.args.items() if key not in _NOT_IN_FRAME},
            }
            for span in self.spans
        )
