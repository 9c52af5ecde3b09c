"""The operations of a pass as a (max, +) map: from moments before a pass to moments after it.

The operations are played once, with forms instead of times. A form has a lag (s) for each moment on
which a pass may depend, and stands for the latest of these moments plus their lags. So a pass of a
hundred layers that gather their weights becomes a handful of numbers.
"""

from collections.abc import Iterator, Sequence
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.config.dataclass import dataclass
from sim.engine.costs import Costs, Parts
from sim.engine.transfers import RankTransfers
from sim.program.operations import (
    INPUT,
    Collective,
    Communicate,
    Compute,
    Drained,
    Operation,
    PassOps,
    Recent,
)

# The moments on which a pass may depend, in this order: when its stage is ready and its input has
# arrived; when the host is free; when the last computation ended; when the computation before it
# ended; when the pass's input arrived; when each side stream is free.
READY, HOST, COMPUTED, COMPUTED_2, BROUGHT = range(5)
FIRST_STREAM = 5

Form = tuple[float, ...]
Floats = NDArray[np.float64]


def later(form: Form, seconds: float) -> Form:
    """The form of the moment `seconds` after the moment of a form."""
    return tuple(lag + seconds for lag in form)


def latest(*forms: Form) -> Form:
    """The form of the latest of some moments."""
    return tuple(map(max, *forms)) if len(forms) > 1 else forms[0]


class PlayedOperation(NamedTuple):
    """An operation of a pass: when it is ready, when the host reaches it, when it ends.

    `parts` are the seconds of a computation by cause.
    """

    operation: Operation
    start: Form
    host: Form
    end: Form
    parts: Parts | None

    @property
    def form(self) -> tuple[object, ...]:
        """A key that is equal for operations that are written to records together."""
        operation = self.operation
        calls = tuple((call.cause, call.kind) for call in self.collectives)
        return operation.stream, self.parts is None, calls

    @property
    def collectives(self) -> tuple[Collective, ...]:
        """The collectives in which a communication takes part."""
        calls = () if isinstance(self.operation, Compute) else self.operation.calls
        return tuple(call for call in calls if isinstance(call, Collective))


@dataclass(frozen=True, slots=True, eq=False)
class PassMap:
    """The (max, +) `table` of a pass [outputs, inputs]. Outputs are moments: its last computation
    ends, the host is free, each side stream is free, and its last but one computation ends. `form`
    is equal for passes that are written to records together."""

    table: Floats
    played: tuple[PlayedOperation, ...]
    computations: int
    form: tuple[object, ...]


def pass_map(
    ops: PassOps, costs: Costs, desk: RankTransfers, stage: int, streams: Sequence[str]
) -> PassMap:
    """Play the operations of a pass with forms; `streams` are the program's side streams."""
    player = _Player(costs, desk, stage, streams)
    for operation in ops:
        player.play(operation)
    return player.map()


class _Player:
    """Plays a single pass by the same rules as `sim.engine.role_process`."""

    def __init__(
        self, costs: Costs, desk: RankTransfers, stage: int, streams: Sequence[str]
    ) -> None:
        self.costs, self.desk, self.stage = costs, desk, stage
        self.size = FIRST_STREAM + len(streams)
        self.free = {name: self._input(FIRST_STREAM + n) for n, name in enumerate(streams)}
        self.ready, self.host = self._input(READY), self._input(HOST)
        self.computed = [self._input(COMPUTED_2), self._input(COMPUTED)]
        self.ended: dict[str, Form] = {}
        self.played: list[PlayedOperation] = []

    def _input(self, number: int) -> Form:
        return tuple(0.0 if n == number else -inf for n in range(self.size))

    def play(self, operation: Operation) -> None:
        if isinstance(operation, Compute):
            self._compute(operation)
        else:
            self._communicate(operation)

    def _compute(self, operation: Compute) -> None:
        ready = latest(self.ready, *self._causes(operation))
        cost = self.costs.of(operation.work)
        duration, host = cost.duration, self.host
        end = latest(later(ready, duration.device), later(host, duration.lead))
        self.host = latest(later(ready, duration.wait), later(host, duration.host))
        self.ready = self.ended[operation.name] = end
        self.computed.append(end)
        self.played.append(PlayedOperation(operation, ready, host, end, cost.parts))

    def _communicate(self, operation: Communicate) -> None:
        alone = self.free.get(operation.stream)  # None for the compute stream, which needs the host
        at = latest(self.ready, self.host) if alone is None else alone
        start = latest(at, *self._causes(operation))
        played = PlayedOperation(operation, start, start, start, None)
        seconds = (self.desk.traffic(call, self.stage).alone for call in played.collectives)
        end = later(start, max(seconds, default=0.0))
        self.ended[operation.name] = end
        if alone is None:
            self.ready = end
        else:
            self.free[operation.stream] = end
        self.played.append(played._replace(end=end))

    def _causes(self, operation: Operation) -> Iterator[Form]:
        for cause in operation.after:
            if isinstance(cause, Recent):
                yield self.computed[-cause.back]
            elif isinstance(cause, Drained):
                if cause.stream in self.free:
                    yield self.free[cause.stream]
            elif cause == INPUT:
                yield self._input(BROUGHT)
            else:
                yield self.ended[str(cause)]

    def map(self) -> PassMap:
        return PassMap(
            table=np.array([self.ready, self.host, *self.free.values(), self.computed[-2]]),
            played=tuple(self.played),
            computations=len(self.computed) - 2,
            form=tuple(operation.form for operation in self.played),
        )
