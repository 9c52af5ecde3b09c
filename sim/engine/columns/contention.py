"""How much shared links slow the traffic on them, as measured in one run on the clock.

As long as no link is asked for more than its capacity, all traffic moves as if alone, and replay is
exact. Otherwise weighted max-min fairness slows some of the traffic. How much depends on when the
traffic meets, which only the clock knows.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.engine.clock import end_of, perform
from sim.engine.columns.weights import Floats
from sim.engine.folded import ComputeStep, FoldedProgram
from sim.engine.replay.link_uses import ROUNDING

SAMPLES, TOLERANCE = 20, 0.01  # columns played on the clock; the largest relative error


@dataclass(frozen=True, slots=True)
class Contention:
    """The effect of shared links in one run on the clock. `factors` say how many times as long each
    transfer takes on its links. `longer` says how many seconds longer each computation (role,
    index) takes because other traffic disturbs it."""

    factors: Mapping[int, float]
    longer: Mapping[tuple[int, int], float]

    def __bool__(self) -> bool:
        return bool(self.factors or self.longer)


def clocked_contention(program: FoldedProgram) -> Contention:
    """Measure the contention of a program in one run on the clock."""
    _, meetings, processes = perform(program)
    factors, least = {}, ROUNDING * end_of(processes)
    for number, transfer in enumerate(program.transfers):
        traffic = transfer.traffic
        late = meetings.end[number] - meetings.start[number] - traffic.alone
        if late > least:
            factors[number] = 1.0 + late / traffic.seconds
    longer = {}
    for number, process in enumerate(processes):
        logs = process.logs.values()
        for step, parts in (
            entry for log in logs for entry in zip(log.steps, log.parts, strict=True)
        ):
            if isinstance(step, ComputeStep) and parts is not step.cost.parts:
                more = sum(parts.values()) - step.cost.duration.device
                if more > least:
                    longer[number, step.index] = more
    return Contention(factors, longer)


def spread(columns: int) -> NDArray[np.intp]:
    """The columns that are checked against the clock: up to 20, evenly spread."""
    return np.unique(np.linspace(0, columns - 1, min(columns, SAMPLES)).astype(np.intp))


def clocked_times(programs: Iterable[FoldedProgram]) -> list[float]:
    """The step times (s) of programs, each played on the clock."""
    return [end_of(perform(program)[2]) for program in programs]


class InexactError(InputError):
    """Transfers contend in a way that one run on the clock does not predict."""


def errors(replayed: Floats, clocked: Sequence[float]) -> tuple[float, float]:
    """The mean relative error of replay against the clock, and the largest absolute error.

    Raises `InexactError` if the largest error is above 1 %.
    """
    relative = np.array(replayed) / np.array(clocked) - 1.0
    worst = float(np.abs(relative).max())
    if worst > TOLERANCE:
        fault = f"transfers contend, and replay is off by {worst:.1%} on {len(clocked)} samples"
        raise InexactError("--engine replay", fault, "use --engine clock")
    return float(relative.mean()), worst
