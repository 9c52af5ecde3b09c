"""What a cluster costs while it works: rent and electricity, the `[price]` table of a topology."""

from dataclasses import dataclass

from sim.config.units import DollarsPerHour, DollarsPerJoule, Watts


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Rent of one device for an hour, and the power behind it.

    `watts` is what a device draws with its share of host and network (its own board power where
    left out), `pue` the power usage effectiveness of the building, `electricity` the price of
    energy.
    """

    hour: DollarsPerHour
    watts: Watts | None = None
    pue: float = 1.0
    electricity: DollarsPerJoule | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.pue < 10:
            raise ValueError(f"pue = {self.pue} must be at least 1; e.g. 1.1")
