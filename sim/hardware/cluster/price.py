"""What a cluster costs: rent, electricity, and the parts of its network."""

from typing import Annotated

from sim.config.dataclass import dataclass
from sim.config.units import HOUR, DollarsPerHour, DollarsPerJoule, Ge, Gt, Lt, Watts

Dollars = Annotated[float, Ge(0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Rent of one device for an hour, and its power.

    `source` names the seller, and `date` the date of the price; both are empty for a user's own
    price. `host` is the power of hosts and network for each device, `pue` the power usage
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
