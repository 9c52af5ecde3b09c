"""What training costs: GPU-hours at the topology's price, and the energy it takes.

days = tokens / (tokens per second) / 86,400; dollars = days x 24 x GPUs x price per GPU-hour;
energy = days x 86,400 x GPUs x watts per GPU x power usage effectiveness.
"""

from dataclasses import asdict, dataclass
from typing import Any

from sim.hardware.topology import Topology
from sim.units import DAY, HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Time, money and energy for `tokens` tokens.

    `dollars` is rent; None where the topology has no price. `energy` (J) is that of the devices
    and of what hosts and cools them; `electricity` its price in dollars, if known.
    """

    tokens: float
    seconds: float
    gpu_hours: float
    dollars: float | None
    energy: float
    electricity: float | None

    @property
    def days(self) -> float:
        return self.seconds / DAY

    @property
    def tokens_per_dollar(self) -> float | None:
        return self.tokens / self.dollars if self.dollars else None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        more = {"days": self.days, "tokens_per_dollar": self.tokens_per_dollar}
        return {**asdict(self), **more}


def cost_of(
    topology: Topology, step_time: float, tokens_per_step: float, tokens: float, *,
    goodput: float = 1.0,
) -> Cost:  # fmt: skip
    """The cost of `tokens` tokens at so many a step; `goodput` is the share of time that counts."""
    seconds = tokens / tokens_per_step * step_time / goodput
    hours = seconds / HOUR * topology.gpus
    price = topology.price
    watts = price.watts if price and price.watts else topology.device.power
    energy = hours * HOUR * watts * (price.pue if price else 1.0)
    return Cost(
        tokens=tokens,
        seconds=seconds,
        gpu_hours=hours,
        dollars=hours * price.hour if price else None,
        energy=energy,
        electricity=energy * price.electricity if price and price.electricity else None,
    )
