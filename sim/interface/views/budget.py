"""A budget: when the training is done with which chance, for which money, and what a date needs."""

from collections.abc import Iterator
from math import isfinite

from sim.analysis.reliability.budget import Budget
from sim.config.units import DAY
from sim.interface.document.nodes import Document, Sentence, document, section, table
from sim.interface.views.cost import FITS
from sim.results.formatting import count, large, several


def view(budget: Budget) -> Document:
    """The days and dollars by their chance, the deadline, and what all of it rests on."""
    dollars = budget.dollars or {}
    rows = [
        (
            f"{float(chance):.0%}",
            _count(days),
            f"{dollars[chance]:,.0f}" if dollars and isfinite(days) else "",
        )
        for chance, days in budget.done.items()
    ]
    head = f"{large(budget.tokens)} tokens on {several(budget.gpus, 'GPU')}"
    half, most = (_count(budget.after(chance) / DAY) for chance in (0.5, 0.9))
    done = f"done in {half} days" if isfinite(budget.after(0.5)) else "never done"
    return document(
        f"{head}: {done} with 50 %, {most} with 90 %",
        *map(Sentence, _failures(budget)),
        table(rows, ("chance", "days", "dollars")),
        section("", *map(Sentence, _deadline(budget))),
        *(Sentence(words, "aside") for words in budget.assumed),
        None if budget.rent else Sentence('no price is known; add --price "2 USD/h"', "aside"),
        FITS[budget.fits],
        line=f"{head}: {done}",
    )


def _count(days: float) -> str:
    return count(days) if isfinite(days) else "never"


def _failures(budget: Budget) -> Iterator[str]:
    if budget.between is None:
        yield "nothing fails (--failures counts interruptions)"
        return
    yield (
        f"{budget.interruptions:.3g} interruptions a device and year: one of this job in "
        f"{count(budget.between / DAY)} days; {budget.share:.1%} of the time counts"
    )


def _deadline(budget: Budget) -> Iterator[str]:
    if budget.deadline is None or budget.within is None:
        return
    by, chance = several(budget.deadline, "day"), f"{budget.chance:.0%}"
    yield f"Done within {by}: {budget.within:.0%} likely."
    if not budget.needed:
        yield f"No number of replicas of this layout fits and is done by then with {chance}."
        return
    gpus, days = int(budget.needed["gpus"]), budget.needed["days"]
    yield f"With {chance} it needs {several(gpus, 'GPU')}, which take {count(days)} days."
