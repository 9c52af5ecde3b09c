"""How smooth a measured field is: `gaussian` draws on it, profiles store it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Smoothness:
    """How far one point speaks for another: `length` in the points' units, `amplitude` the standard
    deviation of the field, `noise` that of a measurement."""

    length: float
    amplitude: float
    noise: float

    def __post_init__(self) -> None:
        if not min(self.length, self.amplitude, self.noise) > 0:
            raise ValueError("length, amplitude and noise must be positive")
