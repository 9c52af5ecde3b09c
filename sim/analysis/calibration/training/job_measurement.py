"""The measurement of a job: steps by phase, memory, and the machine's own drift."""

from collections.abc import Sequence
from dataclasses import field, replace
from statistics import mean, median

import numpy as np

from sim.config.dataclass import dataclass
from sim.hardware.kernels.measurements import Measurement

PhaseSeconds = dict[str, float]
PHASES = ("forward", "backward", "communication", "optimizer")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRound:
    """A round: the seconds of each step by phase, and the seconds of the reference kernels as the
    mean of before and after the steps.

    `kernels` are kernels that were timed before the steps; `transfers` are (bytes, seconds) of
    all-reduces.
    """

    reference: float
    steps: tuple[PhaseSeconds, ...]
    kernels: tuple[Measurement, ...] = ()
    transfers: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMeasurement:
    """All rounds of a job; `peak` is the memory (bytes) of the rank that needs most."""

    rounds: tuple[MeasuredRound, ...]
    parameters: int
    peak: float
    loss: float
    machine: dict[str, str] = field(default_factory=dict)

    @property
    def steps(self) -> tuple[PhaseSeconds, ...]:
        return tuple(step for measured in self.rounds for step in measured.steps)

    def median(self, phase: str) -> float:
        """Return the median seconds of a phase over all steps."""
        return median(step.get(phase, 0.0) for step in self.steps)

    @property
    def spread(self) -> float:
        """Interquartile range of the step times over their median."""
        first, third = np.quantile([step["step"] for step in self.steps], (0.25, 0.75))
        return float(third - first) / self.median("step")

    @property
    def drift(self) -> tuple[float, float]:
        """The shortest and the longest time of the reference kernels, relative to the median.

        >>> rounds = tuple(MeasuredRound(reference=r, steps=()) for r in (1.0, 1.1, 0.95))
        >>> measured = JobMeasurement(parameters=1, peak=1.0, loss=0.0, rounds=rounds)
        >>> [round(relative, 3) for relative in measured.drift]
        [-0.05, 0.1]
        """
        references = [measured.reference for measured in self.rounds]
        middle = median(references)
        return min(references) / middle - 1.0, max(references) / middle - 1.0


def joined(ranks: Sequence[JobMeasurement]) -> JobMeasurement:
    """Join the measurements of equal ranks: mean times, the highest peak, and all kernels."""
    rounds = tuple(map(_joined_round, zip(*(rank.rounds for rank in ranks), strict=True)))
    peak, loss = max(rank.peak for rank in ranks), mean(rank.loss for rank in ranks)
    return replace(ranks[0], rounds=rounds, peak=peak, loss=loss)


def _joined_round(ranks: Sequence[MeasuredRound]) -> MeasuredRound:
    steps = zip(*(rank.steps for rank in ranks), strict=True)
    transfers = zip(*(rank.transfers for rank in ranks), strict=True)
    return MeasuredRound(
        reference=mean(rank.reference for rank in ranks),
        steps=tuple(_mean_phases(step) for step in steps),
        kernels=tuple(kernel for rank in ranks for kernel in rank.kernels),
        transfers=tuple((same[0][0], mean(seconds for _, seconds in same)) for same in transfers),
    )


def _mean_phases(ranks: Sequence[PhaseSeconds]) -> PhaseSeconds:
    return {phase: mean(rank.get(phase, 0.0) for rank in ranks) for phase in ranks[0]}
