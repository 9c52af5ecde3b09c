"""How smooth a measured field is: used by `gaussian`, stored in profiles."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Smoothness:
    """`length` is the distance over which points correlate, in their units, `amplitude` the
    standard deviation of the field, `noise` that of a measurement."""

    length: float
    amplitude: float
    noise: float

    def __post_init__(self) -> None:
        if not min(self.length, self.amplitude, self.noise) > 0:
            raise ValueError("length, amplitude and noise must be positive")
