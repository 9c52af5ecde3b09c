"""What is seen of a job on this machine: steps by phase, memory, and the machine's own drift."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

Laps = dict[str, float]
PHASES = ("forward", "backward", "communication", "optimizer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round: seconds of the reference kernels before and after it, and the steps' laps.

    `kernels` are the calibration's measurements, `transfers` bytes and seconds of all-reduces.
    """

    reference: float
    steps: tuple[Laps, ...]
    kernels: tuple[Any, ...] = ()
    transfers: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """All rounds of a job; `peak` are the bytes of the fullest rank."""

    rounds: tuple[Round, ...]
    parameters: int
    peak: float
    loss: float
    machine: dict[str, str] = field(default_factory=dict)

    @property
    def steps(self) -> tuple[Laps, ...]:
        return tuple(laps for one in self.rounds for laps in one.steps)

    def median(self, phase: str) -> float:
        """Of all steps' seconds."""
        return median(laps.get(phase, 0.0) for laps in self.steps)

    @property
    def spread(self) -> float:
        """Interquartile range of the step times over their median."""
        return quartiles([laps["step"] for laps in self.steps]) / self.median("step")

    @property
    def drift(self) -> tuple[float, float]:
        """How much faster and slower than at the median round the machine was: reference kernels.

        >>> one = Observation(parameters=1, peak=1.0, loss=0.0, rounds=tuple(
        ...     Round(reference=r, steps=()) for r in (1.0, 1.1, 0.95)))
        >>> low, high = one.drift
        >>> round(low, 3), round(high, 3)
        (-0.05, 0.1)
        """
        seen = [one.reference for one in self.rounds]
        middle = median(seen)
        return min(seen) / middle - 1.0, max(seen) / middle - 1.0


def quartiles(values: Sequence[float]) -> float:
    """The interquartile range.

    >>> quartiles([1.0, 2.0, 3.0, 4.0, 5.0])
    2.0
    """
    ordered = sorted(values)
    last = len(ordered) - 1
    return _at(ordered, 0.75 * last) - _at(ordered, 0.25 * last)


def _at(ordered: Sequence[float], place: float) -> float:
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
