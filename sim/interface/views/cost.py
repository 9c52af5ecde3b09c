"""The cost of training: time, money and energy."""

from collections.abc import Mapping

from sim.analysis.reliability.cost import TrainingCost
from sim.config.units import human_seconds
from sim.interface.document.nodes import Document, Sentence, document
from sim.results.answer import Inputs
from sim.results.formatting import energy_unit, large, long_unit
from sim.results.likely import Likely, interval

FITS = {
    True: None,
    False: Sentence("the job does not fit into memory and would not run; see `sim run`", "warning"),
    None: Sentence("whether the job fits into memory is unknown: nothing in the recording says it"),
}


def view(cost: TrainingCost) -> Document:
    """Time, money and energy in a few lines."""
    time = long_unit(cost.seconds)
    simulated = f"{cost.seconds / time[0]:,.1f} {time[1]}, {cost.gpu_hours:,.0f} device-hours"
    if cost.checkpoints:
        simulated += f", {human_seconds(cost.checkpoints)} of them for checkpoints"
    known = cost.likely
    return document(
        f"{large(cost.tokens)} tokens in {_expected(cost, known) if known else simulated}",
        Sentence(f"simulated {simulated}; {known.basis} moved it") if known else None,
        Sentence(_energy(cost)),
        Sentence(_rent(cost)),
        FITS[cost.fits],
    )


def _energy(cost: TrainingCost) -> str:
    joules, unit = energy_unit(cost.energy)
    said = f"energy {cost.energy / joules:,.0f} {unit}, {cost.watts:,.0f} W a device with its host"
    if cost.electricity is None:
        return said
    return f"{said}, {cost.electricity:,.0f} dollars of electricity"


def _rent(cost: TrainingCost) -> str:
    if cost.dollars is None:
        return 'the topology has no price; add --price "2 USD/h"'
    return f"rent{rent(cost, cost.inputs).removeprefix(',')}"


def rent(cost: TrainingCost, inputs: Inputs | None) -> str:
    """Dollars, dollars a million tokens, and whose price that is, behind a comma."""
    if cost.dollars is None:
        return ""
    each = cost.dollars_per_million_tokens or 0.0
    words = f", {cost.dollars:,.0f} dollars, {each:.3g} dollars a million tokens"
    return f"{words}, at {inputs.price}" if inputs else words


def _expected(cost: TrainingCost, likely: Likely) -> str:
    """Expected time and cost of a real run, all in proportion to its time."""
    scale, unit = long_unit(cost.seconds)
    time = likely.of(cost.seconds / scale)
    words = f"{time['expected']:,.1f} {unit} {_bounds(time, likely.level)}"
    if cost.dollars is not None:
        dollars = likely.of(cost.dollars)
        words += f", {dollars['expected']:,.0f} dollars {_bounds(dollars, likely.level, digits=0)}"
    return words


def _bounds(values: Mapping[str, float], level: float, digits: int = 1) -> str:
    return interval((values["low"], values["high"]), level, lambda value: f"{value:,.{digits}f}")
