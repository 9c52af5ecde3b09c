"""Goodput: the account of the days, the formulas beside, and what the target needs."""

from collections.abc import Iterator

from sim.analysis.reliability.goodput import TARGET, Goodput
from sim.config.units import HOUR, MINUTE, human_bytes, human_seconds
from sim.interface.document.nodes import (
    Document,
    Section,
    Sentence,
    document,
    section,
    table,
)
from sim.interface.views.cost import FITS, rent
from sim.results.formatting import large, several
from sim.results.likely import interval


def view(goodput: Goodput) -> Document:
    """The account of the days, the formulas beside, and what the target needs."""
    total = sum(goodput.seconds.values())
    account = [
        (cause, f"{seconds / total:.2%}", _hours(seconds))
        for cause, seconds in goodput.seconds.items()
    ]
    return document(
        f"{several(goodput.days, 'day')} on {several(goodput.gpus, 'GPU')}: "
        f"effective training time {goodput.effective:.1%} "
        f"({several(goodput.interruptions, 'interruption')}, one in {_hours(goodput.between)})",
        table(account),
        section("", *map(Sentence, _checkpoints(goodput))),
        _needs(goodput),
        section("", *map(Sentence, _bill(goodput))),
        _assumed(goodput),
        FITS[goodput.fits],
    )


def _checkpoints(goodput: Goodput) -> Iterator[str]:
    conduct, (best, share) = goodput.conduct, goodput.best
    if goodput.alone > 1:
        yield (
            f"each of {goodput.alone:,} workers fails by itself and does "
            f"{human_seconds(conduct.at_risk)} again; others have the weights, so that nothing "
            "goes back to a checkpoint"
        )
        return
    yield (
        f"checkpoints of {human_bytes(goodput.checkpoint_bytes)} stop training for "
        f"{human_seconds(conduct.stop)} every {human_seconds(conduct.interval)}"
    )
    yield (
        f"best interval: Young {human_seconds(goodput.young)}, Daly {human_seconds(goodput.daly)}, "
        f"simulated {human_seconds(best)} ({share:.1%} effective)"
    )
    yield f"by Daly's formula this interval gives {goodput.formula:.1%}"


def _needs(goodput: Goodput) -> Section | None:
    if not goodput.allowed:
        return None
    rows = [(human_seconds(row["checkpoint"]), _within(row["away"])) for row in goodput.allowed]
    title = f"{TARGET:.0%} effective training time needs, at most, with the best interval:"
    return section(title, table(rows, ("checkpoint stops for", "detection and restart together")))


def _bill(goodput: Goodput) -> Iterator[str]:
    cost, sure = goodput.cost, goodput.tokens_likely
    simulated = f"{large(goodput.tokens)} tokens"
    yield (
        f"{simulated}, {cost.gpu_hours:,.0f} GPU-hours{rent(cost, goodput.inputs)}"
        if not sure
        else f"expected {large(sure['expected'])} tokens "
        f"{interval((sure['low'], sure['high']), sure['level'], large)} at measured steps"
    )
    if sure:
        yield f"simulated {simulated}, {cost.gpu_hours:,.0f} GPU-hours{rent(cost, goodput.inputs)}"


def _assumed(goodput: Goodput) -> Section | None:
    """The assumptions behind the answer."""
    if not goodput.assumed:
        return None
    title = "Assumed (--failures TABLE and --set recovery.KEY=VALUE say otherwise):"
    return section(title, *(Sentence(f"  {said}") for said in goodput.assumed))


def _hours(seconds: float) -> str:
    return f"{seconds / HOUR:,.1f} h"


def _within(seconds: float) -> str:
    return "out of reach" if seconds == 0.0 else f"{seconds / MINUTE:.1f} min"
