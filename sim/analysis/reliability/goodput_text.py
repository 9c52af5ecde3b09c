"""Goodput as text: the account of the days, the formulas beside, and what the target needs."""

from sim.analysis.reliability.cost_text import DOES_NOT_FIT, rent
from sim.analysis.reliability.goodput import TARGET, Goodput
from sim.config.units import HOUR, MINUTE, human_bytes, human_seconds
from sim.results.formatting import large, several
from sim.results.likely import interval
from sim.results.tables import preformatted


def text(goodput: Goodput) -> str:
    """The account of the days, the formulas beside, and what the target needs."""
    blocks = (_account(goodput), _checkpoints(goodput), _needs(goodput), [_bill(goodput)],
              _assumed(goodput))  # fmt: skip
    return "\n\n".join("\n".join(lines) for lines in blocks if lines)


def html(goodput: Goodput) -> str:
    """The same page for a notebook."""
    return preformatted(text(goodput))


def _account(goodput: Goodput) -> list[str]:
    total = sum(goodput.seconds.values())
    head = (
        f"{several(goodput.days, 'day')} on {several(goodput.gpus, 'GPU')}: "
        f"effective training time {goodput.effective:.1%} "
        f"({several(goodput.interruptions, 'interruption')}, one in {_hours(goodput.between)})"
    )
    return [head, ""] + [
        f"  {cause:<12} {seconds / total:7.2%}  {_hours(seconds)}"
        for cause, seconds in goodput.seconds.items()
    ]


def _checkpoints(goodput: Goodput) -> list[str]:
    conduct, (best, share) = goodput.conduct, goodput.best
    if goodput.alone > 1:
        return [
            f"each of {goodput.alone:,} workers fails by itself and does "
            f"{human_seconds(conduct.at_risk)} again; others have the weights, so that nothing "
            "goes back to a checkpoint"
        ]
    return [
        f"checkpoints of {human_bytes(goodput.checkpoint_bytes)} stop training for "
        f"{human_seconds(conduct.stop)} every {human_seconds(conduct.interval)}",
        f"best interval: Young {human_seconds(goodput.young)}, Daly {human_seconds(goodput.daly)}, "
        f"simulated {human_seconds(best)} ({share:.1%} effective)",
        f"by Daly's formula this interval gives {goodput.formula:.1%}",
    ]


def _needs(goodput: Goodput) -> list[str]:
    if not goodput.allowed:
        return []
    return [
        f"{TARGET:.0%} effective training time needs, at most, with the best interval:",
        "  checkpoint stops for   detection and restart together",
        *(f"  {human_seconds(row['checkpoint']):>20}   {_within(row['away'])}"
          for row in goodput.allowed),
    ]  # fmt: skip


def _assumed(goodput: Goodput) -> list[str]:
    """What all of this rests on."""
    lines = [f"  {own}" for own in goodput.assumed]
    head = "Assumed (--failures TABLE and --set recovery.KEY=VALUE say otherwise):"
    return [*([head, *lines] if lines else []), *([] if goodput.fits else [DOES_NOT_FIT])]


def _bill(goodput: Goodput) -> str:
    cost = goodput.cost
    words = f"{large(goodput.tokens)} tokens, {cost.gpu_hours:,.0f} GPU-hours"
    words += rent(cost, goodput.inputs)
    if not goodput.tokens_likely:
        return words
    likely = goodput.tokens_likely
    bounds = interval((likely["low"], likely["high"]), likely["level"], large)
    return f"{words}\nexpected {large(likely['expected'])} tokens {bounds} at measured steps"


def _hours(seconds: float) -> str:
    return f"{seconds / HOUR:,.1f} h"


def _within(seconds: float) -> str:
    return "out of reach" if seconds == 0.0 else f"{seconds / MINUTE:.1f} min"
