"""What training costs: GPU-hours at the topology's price, and the energy it takes.

days = tokens / (tokens per second) / 86,400; dollars = days x 24 x GPUs x price per GPU-hour;
energy = days x 86,400 x GPUs x watts per GPU x power usage effectiveness. A scenario's checkpoints
stop training for bytes / storage every so many steps.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any

from sim.config.errors import InputError
from sim.config.units import DAY, HOUR
from sim.hardware.cluster.topology import Topology
from sim.reliability.pace import of_scenario as of
from sim.results.likely import Likely
from sim.results.shown import Shown
from sim.scenario.scenario import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingCost(Shown):
    """Time, money and energy for `tokens` tokens.

    Training stands still for `checkpoints` of these seconds. `dollars` is rent; None where the
    topology has no price. `energy` (J) is that of the devices and of what hosts and cools them;
    `electricity` its price in dollars, if known.
    """

    view = "sim.reliability.cost_text"

    tokens: float
    seconds: float
    gpu_hours: float
    dollars: float | None
    energy: float
    electricity: float | None
    checkpoints: float = 0.0
    likely: Likely | None = None

    @property
    def days(self) -> float:
        return self.seconds / DAY

    @property
    def tokens_per_dollar(self) -> float | None:
        return self.tokens / self.dollars if self.dollars else None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        more: dict[str, Any] = {"days": self.days, "tokens_per_dollar": self.tokens_per_dollar}
        if self.likely:
            scaled = {"days": self.days, "dollars": self.dollars, "energy": self.energy}
            bounds = {key: self.likely.of(known) for key, known in scaled.items() if known}
            more["likely"] = {**asdict(self.likely), **bounds}
        return {**asdict(self), **more}


def cost_of(
    topology: Topology, step_time: float, tokens_per_step: float, tokens: float, *,
    goodput: float = 1.0,
) -> TrainingCost:  # fmt: skip
    """The cost of `tokens` tokens at so many a step; `goodput` is the share of time that counts."""
    seconds = tokens / tokens_per_step * step_time / goodput
    hours = seconds / HOUR * topology.gpus
    price = topology.price
    watts = price.watts if price and price.watts else topology.device.power
    energy = hours * HOUR * watts * (price.pue if price else 1.0)
    return TrainingCost(
        tokens=tokens,
        seconds=seconds,
        gpu_hours=hours,
        dollars=hours * price.hour if price else None,
        energy=energy,
        electricity=energy * price.electricity if price and price.electricity else None,
    )


def of_scenario(
    scenario: Scenario, *, tokens: float | None = None, goodput: float = 1.0
) -> TrainingCost:
    """The cost of a scenario's token budget, or of `tokens`; `InputError` without either."""
    tokens = tokens or scenario.tokens
    if not tokens:
        raise InputError(scenario.name, "has no token budget", "add tokens = 300e9 or --tokens")
    pace, own = of(scenario), scenario.checkpoints
    stop = pace.size / own.storage / own.steps if own else 0.0
    cost = cost_of(pace.topology, pace.seconds + stop, pace.tokens, tokens, goodput=goodput)
    sure = pace.sure and pace.sure.beside(stop / pace.seconds)
    return replace(cost, checkpoints=tokens / pace.tokens * stop, likely=sure)
