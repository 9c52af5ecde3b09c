"""Where transfers share links: found from their intervals, taken over from one clocked run.

A transfer alone moves at the rate of its narrowest link and uses a share of every other one. As
long as the shares on no link add up to more than one at any time, all of them move as if alone,
and replay is exact. Otherwise weighted max-min fairness slows some of them; by how much depends
on when they meet, which only the clock knows.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.config.errors import InputError
from sim.engine.clock import end_of, perform
from sim.engine.folded import ComputeStep, FoldedProgram
from sim.engine.replay import Replay, with_parameters
from sim.engine.replay_weights import Floats

_ROUNDING = 1e-9
_MOST_CHECKED = 32  # columns looked at for contention
SAMPLES, TOLERANCE = 20, 0.01


@dataclass(frozen=True, slots=True)
class Loads:
    """Which transfer uses which share of which link when it is alone."""

    links: NDArray[np.intp]
    transfers: NDArray[np.intp]
    shares: Floats

    @classmethod
    def of(cls, program: FoldedProgram) -> "Loads":
        rows = []
        for number, transfer in enumerate(program.transfers):
            traffic = transfer.traffic
            if traffic.seconds > 0.0:
                rate = traffic.size / traffic.seconds
                rows += [
                    (link, number, rate * load / program.links[link].capacity)
                    for link, load in traffic.loads
                ]
        links, transfers, shares = zip(*rows, strict=True) if rows else ((), (), ())
        return cls(
            np.array(links, dtype=np.intp), np.array(transfers, dtype=np.intp), np.array(shares)
        )

    def overfull(self, begin: Floats, end: Floats) -> bool:
        """Whether some link is asked for more than it has, with transfers in these intervals."""
        if not len(self.links):
            return False
        last = float(end.max())
        # A transfer that ends as another one begins leaves the link to it.
        times = np.concatenate((begin[self.transfers], end[self.transfers] - _ROUNDING * last))
        changes = np.concatenate((self.shares, -self.shares))
        order = np.lexsort((changes, times, np.concatenate((self.links, self.links))))
        return bool(np.cumsum(changes[order]).max() > 1.0 + 1e-6)


def contended(replay: Replay, parameters: Floats | None = None) -> bool:
    """Whether transfers slow each other in a column, or in any of some columns spread evenly."""
    loads = Loads.of(replay.shape.program)
    own = replay.parameters if parameters is None else parameters
    if own.ndim == 1:
        return loads.overfull(*replay.intervals(own)[1:])
    count = own.shape[1]
    chosen = np.unique(np.linspace(0, count - 1, min(count, _MOST_CHECKED)).astype(int))
    return any(loads.overfull(*replay.intervals(own[:, i].copy())[1:]) for i in chosen)


@dataclass(frozen=True, slots=True)
class Contention:
    """What one run of the clock says of traffic that shares links: by how many times transfers
    are slowed, and how much longer computations (role, index) last for what disturbs them."""

    factors: Mapping[int, float]
    longer: Mapping[tuple[int, int], float]

    def __bool__(self) -> bool:
        return bool(self.factors or self.longer)


def clocked_contention(program: FoldedProgram) -> Contention:
    """Contention as one run of the clock finds it."""
    _, meetings, processes = perform(program)
    factors = {}
    for number, transfer in enumerate(program.transfers):
        traffic = transfer.traffic
        if traffic.seconds > 0.0:
            took = meetings.end[number] - meetings.start[number]
            factor = (took - traffic.latency) / traffic.seconds
            if factor > 1.0 + _ROUNDING:
                factors[number] = factor
    longer = {}
    for number, process in enumerate(processes):
        for logged in (logged for log in process.logs.values() for logged in log):
            step = logged.step
            if isinstance(step, ComputeStep) and logged.parts is not step.cost.parts:
                longer[number, step.index] = sum(logged.parts.values()) - step.cost.duration.device
    return Contention(factors, longer)


def spread(columns: int) -> NDArray[np.intp]:
    """Which columns are held to the clock: up to 20, evenly spread."""
    return np.unique(np.linspace(0, columns - 1, min(columns, SAMPLES)).astype(np.intp))


def clocked_times(programs: Iterable[FoldedProgram]) -> list[float]:
    """The step times (s) of programs, each played on the clock."""
    return [end_of(perform(program)[2]) for program in programs]


class InexactError(InputError):
    """Transfers contend in ways that one clocked run does not foresee."""


def errors(replayed: Floats, clocked: Sequence[float]) -> tuple[float, float]:
    """The mean relative error of replay against the clock, and the worst one's size.

    Raises `InexactError` where that is above 1 %: an approximation that is no good is refused.
    """
    relative = np.array(replayed) / np.array(clocked) - 1.0
    worst = float(np.abs(relative).max())
    if worst > TOLERANCE:
        what = f"transfers contend, and replay is off by {worst:.1%} on {len(clocked)} samples"
        raise InexactError("--engine replay", what, "use --engine clock")
    return float(relative.mean()), worst


def check(replay: Replay, columns: Floats) -> float:
    """The worst error on up to 20 of the columns; raises as `errors` does."""
    chosen, shape = columns[:, spread(columns.shape[1])], replay.shape
    programs = (with_parameters(shape.program, shape, column) for column in chosen.T)
    return errors(replay.times(chosen), clocked_times(programs))[1]
