"""The cost of training: GPU-hours at the topology's price, and energy.

days = tokens / (tokens per second) / 86,400; dollars = days x 24 x GPUs x price per GPU-hour;
energy = days x 86,400 x GPUs x (watts of a GPU + watts of its host) x power usage effectiveness. A
GPU draws the power that its step needs (`Device.drawn`). Where a scenario has checkpoints, the
seconds for which they stop training are averaged over the steps (`saving`).
"""

from dataclasses import asdict, replace
from math import inf
from os import PathLike
from typing import Any

from sim import kind, questions
from sim.analysis.reliability.saving import stopped
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.units import DAY, HOUR, Number
from sim.hardware.cluster.topology import Topology
from sim.results.answer import Answer, Inputs
from sim.results.likely import Likely, Pace
from sim.scenario.scenario import BaseScenario
from sim.scenario.settings import Settings, settings_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingCost(Answer):
    """Time, money and energy for `tokens` tokens.

    In `checkpoints` of the `seconds`, training stands still to write checkpoints. `dollars` is the
    rent; None where the topology has no price. `energy` (J) is the energy of the devices, their
    hosts and the cooling. `watts` is the mean draw of a device with its host. `electricity` is the
    price of the energy in dollars, if known. Where `fits` is false, the job would not run; None
    means unknown.
    """

    view = "sim.interface.views.reliability:cost"
    picture = "sim.interface.plots.reliability:cost"
    unwritten = ("likely",)
    derived = ("days", "tokens_per_dollar", "dollars_per_million_tokens", "likely=bounds")
    frame_rows = "rows"
    frame_index = ("figure",)

    tokens: float
    seconds: float
    gpu_hours: float
    dollars: float | None
    energy: float
    watts: float
    electricity: float | None
    checkpoints: float = 0.0
    fits: bool | None = True
    likely: Likely | None = None
    inputs: Inputs | None = None

    @property
    def days(self) -> float:
        return self.seconds / DAY

    @property
    def tokens_per_dollar(self) -> float | None:
        return self.tokens / self.dollars if self.dollars else None

    @property
    def dollars_per_million_tokens(self) -> float | None:
        return self.dollars / self.tokens * 1e6 if self.dollars else None

    @property
    def bounds(self) -> dict[str, Any] | None:
        """Bounds and expected values, from measured runs, of the ratio of measured to simulated
        time, of days, dollars and energy."""
        if self.likely is None:
            return None
        scaled = {"days": self.days, "dollars": self.dollars, "energy": self.energy}
        ranges = {key: self.likely.of(known) for key, known in scaled.items() if known}
        return {**asdict(self.likely), **ranges}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each figure: its simulated value, and its bounds from measured runs."""
        likely = self.bounds or {}
        named = {"days": self.days, "gpu_hours": self.gpu_hours, "dollars": self.dollars,
                 "dollars_per_million_tokens": self.dollars_per_million_tokens,
                 "energy": self.energy, "electricity": self.electricity}  # fmt: skip
        return [
            {"figure": key, "simulated": value, **likely.get(key, {})}
            for key, value in named.items()
        ]


def cost_of(
    topology: Topology, step_time: float, tokens_per_step: float, tokens: float, *,
    goodput: float = 1.0, watts: float | None = None,
) -> TrainingCost:  # fmt: skip
    """Return the cost of `tokens` tokens. `goodput` is the share of the time that is productive. A
    device draws `watts` on average, or its full power where `watts` is unknown."""
    seconds = tokens / tokens_per_step * step_time / goodput
    hours = seconds / HOUR * topology.gpus
    price = topology.price
    drawn = (watts or topology.device.power) + ((price and price.host) or 0.0)
    energy = hours * HOUR * drawn * (price.pue if price else 1.0)
    return TrainingCost(
        tokens=tokens,
        seconds=seconds,
        gpu_hours=hours,
        dollars=hours * price.hour if price else None,
        energy=energy,
        watts=drawn,
        electricity=energy * price.electricity if price and price.electricity else None,
    )


def tokens_of(scenario: BaseScenario, asked: float | None) -> float:
    """Return the requested tokens, else the scenario's own. Raises `InputError`."""
    if asked is not None and not 0.0 < asked < inf:
        raise InputError("--tokens", f"{asked:g} is not positive", "write a positive number")
    tokens = asked or scenario.tokens
    if not tokens:
        raise InputError(scenario.name, "has no token budget", "add tokens = 300e9 or --tokens")
    return tokens


def check_update(tokens: float, pace: Pace) -> None:
    """Raise `InputError` for fewer tokens than an update has."""
    if tokens < pace.tokens:
        fault = f"{tokens:,.0f} tokens are fewer than one update has: {pace.tokens:,.0f}"
        raise InputError("--tokens", fault, "give that many or more, or take a smaller batch")


def cost(
    scenario: str | PathLike[str] | BaseScenario,
    *,
    tokens: Number | None = None,
    price: str | None = None,
    goodput: Number = 1.0,
    settings: Settings = (),
) -> TrainingCost:
    """Predict the cost of a scenario's token budget, or of `tokens`, with `settings` applied.

    `price` is a GPU's rent such as "2 USD/h" and replaces the topology's; `goodput` is the share of
    the time that is productive. Numbers may be texts such as "15T". Raises `InputError`, also where
    neither the scenario nor `tokens` gives a number of tokens.

    >>> answer = cost("gpt3-175b-cost", price="2 USD/h", goodput=0.9)
    >>> answer.dollars == 2 * answer.gpu_hours, answer.inputs.price
    (True, '2 USD/h per GPU (as given)')
    """
    if not 0.0 < goodput <= 1.0:
        fault = (
            f"{goodput:g} is more than the whole time"
            if goodput > 1.0
            else f"{goodput:g} is not positive"
        )
        raise InputError("--goodput", fault, "give a share of the time")
    scenario = kind.load(scenario, settings_of(settings, price))
    tokens = tokens_of(scenario, tokens)
    setup = kind.set_up(scenario, brief=True)
    pace = questions.pace(setup)
    check_update(tokens, pace)
    stop = stopped(setup, pace, scenario.checkpoints)
    spent = cost_of(
        pace.topology, pace.seconds + stop, pace.tokens, tokens, goodput=goodput, watts=pace.watts
    )
    sure = pace.sure and pace.sure.beside(stop / pace.seconds)
    stops = tokens / pace.tokens * stop
    return replace(spent, checkpoints=stops, likely=sure, fits=pace.fits, inputs=pace.inputs)
