"""The timeline for all pictures: when each operation ran, on which stream of which role."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, overload

from sim.config.dataclass import dataclass
from sim.program.causes import Cause

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


Row = TypeVar("Row")


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A number of `ranks` that behave alike and are simulated once; `first_rank` is the lowest.

    `pieces` has the piece of the model in each of the ranks' chunks, `coordinates` the coordinates
    of the lowest rank along the axes.
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

    The `args` of a pass are phase, microbatch, chunk and `parts`, seconds by cause that add up to
    the pass. The `args` of a communication are kind, bytes, ranks, algorithm, protocol, its
    `transfers` and `meetings`. A meeting is the number of a transfer, which all participants
    share, and for a message also its source and target stage.
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
class Columns:
    """Computations and transfers as rows, from `begin` to `end` (s). A transfer's row does not
    include the wait before it.

    `cause` is the place of a row's cause in `causes`. `actions` [rows, 3] are the passes to which
    rows belong: kind (its place in `KINDS`), microbatch and chunk, or -1 without a pass.
    """

    role: "NDArray[np.intp]"
    begin: "NDArray[np.float64]"
    end: "NDArray[np.float64]"
    computes: "NDArray[np.bool_]"
    cause: "NDArray[np.intp]"
    actions: "NDArray[np.intp]"
    causes: tuple[Cause, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Rate:
    """A rate over the step: value i of `values` holds from moment i of `times` (s) on.

    `of` names the measured quantity, `unit` its unit. The rate belongs to one `role`, or to the
    whole machine (None).
    """

    role: int | None
    of: str
    unit: str
    times: "NDArray[np.float64]"
    values: "NDArray[np.float64]"


class Deferred(Sequence[Row]):
    """Rows that are computed on first use."""

    def __init__(self, write: Callable[[], Sequence[Row]]) -> None:
        self._write = write

    @cached_property
    def rows(self) -> Sequence[Row]:
        """The rows, computed on first use."""
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
    """Spans of a run whose `columns` can be computed without the spans."""

    def __init__(
        self, write: Callable[[], Sequence[Span]], columns: "Callable[[], Columns]"
    ) -> None:
        super().__init__(write)
        self._columns = columns

    @cached_property
    def columns(self) -> Columns:
        """The computations and transfers of the run as columns."""
        return self._columns()


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """All spans of one run, in order of their start within each role and stream. `step` is the time
    of a step if it differs from `end` (as with `Program.apart`). `rates` are the rates of
    devices and links over time."""

    roles: tuple[Role, ...]
    spans: Sequence[Span]
    end: float
    events: int = 0
    step: float | None = None
    rates: Sequence[Rate] = ()
