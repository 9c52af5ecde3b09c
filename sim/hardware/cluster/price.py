"""What a cluster costs: rent, electricity, and the switches and cables of its network."""

from typing import Annotated

from sim.config.bounds import Ge, Gt, Lt
from sim.config.dataclass import dataclass
from sim.config.units import DAY, HOUR, DollarsPerHour, DollarsPerJoule, Watts

Dollars = Annotated[float, Ge(0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Rent of one device for an hour, and the power behind it.

    `source` says whose price it is and `date` from when; both are empty for a price that the user
    gives. `host` is the power of hosts and network for each device, `pue` the power usage
    effectiveness of the building, `electricity` the price of energy. `switch`, `cable` and
    `transceiver` are prices of the network's parts, written off in `network_years` (assumed).
    """

    hour: DollarsPerHour
    source: str = ""
    date: str = ""
    host: Watts | None = None
    pue: Annotated[float, Ge(1), Lt(10)] = 1.0
    electricity: DollarsPerJoule | None = None
    switch: Dollars | None = None
    cable: Dollars | None = None
    transceiver: Dollars | None = None
    network_years: Annotated[float, Gt(0)] = 4.0

    def __str__(self) -> str:
        origin = ", ".join(filter(None, (self.source, self.date))) or "as given"
        return f"{self.hour:g} USD/h per GPU ({origin})"


def per_million(price: Price | None, gpus: int, tokens_per_second: float) -> float | None:
    """Dollars of rent for a million tokens: gpus x hour / 3600 / (tokens / s) x 1e6.

    >>> per_million(Price(hour=3.6), 8, 8000.0), per_million(None, 8, 8000.0)
    (1.0, None)
    """
    if price is None or not tokens_per_second:
        return None
    return gpus * price.hour / HOUR / tokens_per_second * 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """The parts of a network: `switches` by tier, leaves first; `links`, the cables from NICs to
    switches (or from node to node); and `trunks`, the cables between switches."""

    switches: tuple[int, ...] = ()
    links: int = 0
    trunks: int = 0

    @property
    def cables(self) -> int:
        """All cables."""
        return self.links + self.trunks

    @property
    def transceivers(self) -> int:
        """Two transceivers for each cable, one at each end."""
        return 2 * self.cables

    def hourly(self, price: Price | None) -> float | None:
        """Dollars an hour for all parts until they are written off; None where a price is unknown.

        >>> round(Bill(links=1).hourly(Price(hour=1.0, cable=8766.0, transceiver=0.0)), 9)
        0.25
        """
        cost = self.dollars(price)
        if price is None or cost is None:
            return None
        return cost / (price.network_years * 365.25 * DAY / HOUR)

    def dollars(self, price: Price | None) -> float | None:
        """Dollars for all parts; None where a price is unknown."""
        parts = (
            (sum(self.switches), price and price.switch),
            (self.cables, price and price.cable),
            (self.transceivers, price and price.transceiver),
        )
        total = 0.0
        for count, each in parts:
            if each is None and count:
                return None
            total += count * (each or 0.0)
        return total
