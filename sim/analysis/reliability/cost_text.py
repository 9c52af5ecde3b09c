"""The cost of training as text."""

from collections.abc import Mapping

from sim.analysis.reliability.cost import TrainingCost
from sim.config.units import human_seconds
from sim.results.answer import Inputs
from sim.results.formatting import energy_unit, large, long_unit
from sim.results.likely import Likely, interval
from sim.results.tables import preformatted

DOES_NOT_FIT = "warning: the job does not fit into memory and would not run; see `sim run`"


def text(cost: TrainingCost) -> str:
    """Time, money and energy in a few lines."""
    time, energy = long_unit(cost.seconds), energy_unit(cost.energy)
    simulated = f"{cost.seconds / time[0]:,.1f} {time[1]}, {cost.gpu_hours:,.0f} device-hours"
    if cost.checkpoints:
        simulated += f", {human_seconds(cost.checkpoints)} of them for checkpoints"
    tokens = f"{large(cost.tokens)} tokens in"
    if cost.likely:
        lines = [
            f"{tokens} {_expected(cost, cost.likely)}",
            f"simulated {simulated}; {cost.likely.basis} moved it",
        ]
    else:
        lines = [f"{tokens} {simulated}"]
    lines.append(f"energy {cost.energy / energy[0]:,.0f} {energy[1]}")
    if cost.electricity is not None:
        lines[-1] += f", {cost.electricity:,.0f} dollars of electricity"
    if cost.dollars is None:
        lines.append('the topology has no price; add --price "2 USD/h"')
    else:
        lines.append(f"rent{rent(cost, cost.inputs).removeprefix(',')}")
    return "\n".join([*lines, *([] if cost.fits else [DOES_NOT_FIT])])


def rent(cost: TrainingCost, inputs: Inputs | None) -> str:
    """Dollars, dollars a million tokens, and whose price that is, behind a comma."""
    if cost.dollars is None:
        return ""
    each = cost.dollars_per_million_tokens or 0.0
    words = f", {cost.dollars:,.0f} dollars, {each:.3g} dollars a million tokens"
    return f"{words}, at {inputs.price}" if inputs else words


def _expected(cost: TrainingCost, likely: Likely) -> str:
    """What a real run would take and cost, all in proportion to its time."""
    scale, unit = long_unit(cost.seconds)
    time = likely.of(cost.seconds / scale)
    words = f"{time['expected']:,.1f} {unit} {_bounds(time, likely.level)}"
    if cost.dollars is not None:
        dollars = likely.of(cost.dollars)
        words += f", {dollars['expected']:,.0f} dollars {_bounds(dollars, likely.level, digits=0)}"
    return words


def _bounds(values: Mapping[str, float], level: float, digits: int = 1) -> str:
    return interval((values["low"], values["high"]), level, lambda value: f"{value:,.{digits}f}")


def html(cost: TrainingCost) -> str:
    """The same page for a notebook."""
    return preformatted(text(cost))
