"""A budget: when the training is done with which chance, for which money, and what a date needs."""

from collections.abc import Iterator
from math import isfinite

from sim.analysis.reliability.budget import Budget
from sim.config.units import DAY
from sim.interface.document.nodes import Document, Sentence, document, section, table
from sim.interface.views.cost import FITS
from sim.results.formatting import Unit, count, large, long_unit, several


def view(budget: Budget) -> Document:
    """The days and dollars by their chance, the deadline, and what all of it rests on."""
    dollars, half, most = budget.dollars or {}, budget.after(0.5), budget.after(0.9)
    unit = long_unit(half if isfinite(half) else DAY * 2)
    rows = [
        (
            f"{float(chance):.0%}",
            _count(days * DAY, unit),
            f"{dollars[chance]:,.0f}" if dollars and isfinite(days) else "",
        )
        for chance, days in budget.done.items()
    ]
    head = f"{large(budget.tokens)} tokens on {several(budget.gpus, 'GPU')}"
    done = f"done in {_count(half, unit)} {unit[1]}" if isfinite(half) else "never done"
    return document(
        f"{head}: {done} with 50 %, {_count(most, unit)} with 90 %",
        *map(Sentence, _failures(budget)),
        table(rows, ("chance", unit[1], "dollars")),
        section("", *map(Sentence, _deadline(budget))),
        *(Sentence(words, "aside") for words in budget.assumed),
        None if budget.rent else Sentence('no price is known; add --price "2 USD/h"', "aside"),
        FITS[budget.fits],
        line=f"{head}: {done}",
    )


def _count(seconds: float, unit: Unit) -> str:
    return count(seconds / unit[0]) if isfinite(seconds) else "never"


def _long(seconds: float) -> str:
    """A time as people say it.

    >>> _long(21 * DAY), _long(20.4 * DAY), _long(7 * DAY), _long(10800.0), _long(86400.0)
    ('3 weeks', '20.4 days', '1 week', '3 hours', '24 hours')
    """
    weeks = seconds / (7 * DAY)
    if weeks == int(weeks):
        return several(weeks, "week")
    scale, unit = long_unit(seconds)
    return several(float(f"{seconds / scale:.3g}"), unit.removesuffix("s"))


def _failures(budget: Budget) -> Iterator[str]:
    if budget.between is None:
        yield "nothing fails (--failures counts interruptions)"
        return
    yield (
        f"{budget.interruptions:.3g} interruptions a device and year: one of this job in "
        f"{_long(budget.between)}; {budget.share:.1%} of the time counts"
    )


def _deadline(budget: Budget) -> Iterator[str]:
    if budget.deadline is None or budget.within is None:
        return
    by, chance = _long(budget.deadline * DAY), f"{budget.chance:.0%}"
    likely = "less than 1%" if budget.within < 0.005 else f"{budget.within:.0%}"
    yield f"Done within {by}: {likely} likely."
    if not budget.needed:
        yield f"No number of replicas of this layout fits and is done by then with {chance}."
        return
    gpus, days = int(budget.needed["gpus"]), budget.needed["days"]
    yield f"With {chance} it needs {several(gpus, 'GPU')}, which take {_long(days * DAY)}."
