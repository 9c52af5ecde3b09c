"""The cost of training as text."""

from sim.config.units import human_seconds
from sim.reliability.cost import TrainingCost
from sim.results.tables import preformatted


def text(cost: TrainingCost) -> str:
    """Time, money and energy in a few lines."""
    lines = [
        f"{cost.tokens / 1e9:,.0f} billion tokens in {cost.days:,.1f} days, "
        f"{cost.gpu_hours:,.0f} device-hours",
        f"energy {cost.energy / 3.6e9:,.0f} MWh",
    ]
    if cost.checkpoints:
        lines[0] += f", {human_seconds(cost.checkpoints)} of them for checkpoints"
    if cost.electricity is not None:
        lines[-1] += f", {cost.electricity:,.0f} dollars of electricity"
    if cost.dollars is None:
        return "\n".join([*lines, 'the topology has no price; add --price "2 USD/h"'])
    rate = cost.tokens_per_dollar or 0.0
    return "\n".join([*lines, f"rent {cost.dollars:,.0f} dollars, {rate:,.0f} tokens a dollar"])


def html(cost: TrainingCost) -> str:
    """The same page for a notebook."""
    return preformatted(text(cost))
