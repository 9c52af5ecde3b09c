"""Show long runs: a month with interruptions, the cost of a training, a budget, a deadline."""

from collections.abc import Iterator, Mapping
from math import isfinite

from sim.analysis.reliability.budget import Budget
from sim.analysis.reliability.cost import TrainingCost
from sim.analysis.reliability.goodput import TARGET, Goodput
from sim.config.readable import human_bytes, human_seconds
from sim.config.units import DAY, HOUR, MINUTE
from sim.interface.document.nodes import (
    Document,
    Figure,
    Figures,
    Node,
    Section,
    Sentence,
    document,
    section,
    table,
)
from sim.parallel.mesh import axes
from sim.results.answer import Inputs
from sim.results.formatting import Unit, count, energy_unit, large, long_unit, several
from sim.results.likely import Likely, interval

_UNKNOWN = Sentence("whether the job fits into memory is unknown: the recording does not say it")


def _told(fits: bool | None, title: str, *nodes: Node | None, line: str = "") -> Document:
    """Return a document. The title says if the job does not fit into memory; the last sentence says
    if this is unknown."""
    if fits is False:
        first = "does not fit into memory and would not run (see `sim run`); if it did: "
        title, line = first + title, line and first + line
    return document(title, *nodes, _UNKNOWN if fits is None else None, line=line)


def goodput(goodput: Goodput) -> Document:
    """Show the time by cause, the intervals of checkpoints, the limits for a target share of
    effective training time, and the costs."""
    total = sum(goodput.seconds.values())
    account = [
        (cause, f"{seconds / total:.2%}", _hours(seconds))
        for cause, seconds in goodput.seconds.items()
    ]
    return _told(
        goodput.fits,
        f"{several(goodput.days, 'day')} on {several(goodput.gpus, 'GPU')}: "
        f"effective training time {goodput.effective:.1%} "
        f"({several(goodput.interruptions, 'interruption')}, one in {_hours(goodput.between)})",
        table(account),
        section("", *map(Sentence, _checkpoints(goodput))),
        _needs(goodput),
        section("", *map(Sentence, _bill(goodput))),
        _assumed(goodput),
    )


def _checkpoints(goodput: Goodput) -> Iterator[str]:
    conduct, (best, share) = goodput.conduct, goodput.best
    if goodput.alone > 1:
        yield (
            f"each of {goodput.alone:,} workers fails by itself and repeats "
            f"{human_seconds(conduct.at_risk)} of work; others have the weights, so no worker "
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
    title = f"Limits for {TARGET:.0%} effective training time, with the best interval:"
    return section(title, table(rows, ("checkpoint stops for", "detection and restart together")))


def _bill(goodput: Goodput) -> Iterator[str]:
    cost, sure = goodput.cost, goodput.tokens_likely
    counted = goodput.inputs.counted
    simulated = f"{large(goodput.tokens)} {counted}"
    yield (
        f"{simulated}, {cost.gpu_hours:,.0f} GPU-hours{rent(cost, goodput.inputs)}"
        if not sure
        else f"expected {large(sure['expected'])} {counted} "
        f"{interval((sure['low'], sure['high']), sure['level'], large)} at measured steps"
    )
    if sure:
        yield f"simulated {simulated}, {cost.gpu_hours:,.0f} GPU-hours{rent(cost, goodput.inputs)}"


def _assumed(goodput: Goodput) -> Section | None:
    """Show the assumptions behind the answer."""
    if not goodput.assumed:
        return None
    title = "Assumed (--failures TABLE and --set recovery.KEY=VALUE change this):"
    return section(title, *(Sentence(f"  {said}") for said in goodput.assumed))


def _hours(seconds: float) -> str:
    return f"{seconds / HOUR:,.1f} h"


def _within(seconds: float) -> str:
    return "out of reach" if seconds == 0.0 else f"{seconds / MINUTE:.1f} min"


def cost(cost: TrainingCost) -> Document:
    """Show time, money and energy in a few lines."""
    time = long_unit(cost.seconds)
    simulated = f"{cost.seconds / time[0]:,.1f} {time[1]}, {cost.gpu_hours:,.0f} device-hours"
    if cost.checkpoints:
        simulated += f", {human_seconds(cost.checkpoints)} of them for checkpoints"
    known, amount = cost.likely, f"{large(cost.tokens)} {_counted(cost.inputs)}"
    return _told(
        cost.fits,
        f"{amount} in {_expected(cost, known) if known else simulated}",
        Sentence(f"simulated {simulated}; corrected by {known.basis}") if known else None,
        Sentence(_energy(cost)),
        Sentence(_rent(cost)),
    )


def _energy(cost: TrainingCost) -> str:
    joules, unit = energy_unit(cost.energy)
    said = f"energy {cost.energy / joules:,.0f} {unit}, {cost.watts:,.0f} W a device with its host"
    pue = cost.energy / (cost.gpu_hours * HOUR * cost.watts)
    if pue > 1.0 + 1e-9:
        said += f", times {pue:.3g} for power and cooling (PUE)"
    if cost.electricity is None:
        return said
    return f"{said}, {cost.electricity:,.0f} dollars of electricity"


def _rent(cost: TrainingCost) -> str:
    if cost.dollars is None:
        return 'the topology has no price; add --price "2 USD/h"'
    return f"rent{rent(cost, cost.inputs).removeprefix(',')}"


def _counted(inputs: Inputs | None) -> str:
    return inputs.counted if inputs else "tokens"


def rent(cost: TrainingCost, inputs: Inputs | None) -> str:
    """Return ", " and the dollars, the dollars for a million tokens and the source of the price."""
    if cost.dollars is None:
        return ""
    each = cost.dollars_per_million_tokens or 0.0
    words = f", {cost.dollars:,.0f} dollars, {each:.3g} dollars a million {_counted(inputs)}"
    return f"{words}, at {inputs.price}" if inputs else words


def _expected(cost: TrainingCost, likely: Likely) -> str:
    """Return the expected time and cost of a real run; cost is in proportion to time."""
    scale, unit = long_unit(cost.seconds)
    time = likely.of(cost.seconds / scale)
    words = f"{time['expected']:,.1f} {unit} {_bounds(time, likely.level)}"
    if cost.dollars is not None:
        dollars = likely.of(cost.dollars)
        words += f", {dollars['expected']:,.0f} dollars {_bounds(dollars, likely.level, digits=0)}"
    return words


def _bounds(values: Mapping[str, float], level: float, digits: int = 1) -> str:
    return interval((values["low"], values["high"]), level, lambda value: f"{value:,.{digits}f}")


def budget(budget: Budget) -> Document:
    """Show the days and dollars by their chance, the deadline, and the assumptions."""
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
    head = f"{large(budget.tokens)} {budget.inputs.counted} on {several(budget.gpus, 'GPU')}"
    done = f"done in {_count(half, unit)} {unit[1]}" if isfinite(half) else "never done"
    return _told(
        budget.fits,
        f"{head}: {done} with 50 % chance, {_count(most, unit)} with 90 %",
        *map(Sentence, _failures(budget)),
        table(rows, ("chance", unit[1], "dollars")),
        section("", *map(Sentence, (*_deadline(budget), *_money(budget)))),
        section("The job", Figures(tuple(_job(budget)))),
        *(Sentence(words, "aside") for words in budget.assumed),
        None if budget.rent else Sentence('no price is known; add --price "2 USD/h"', "aside"),
        line=f"{head}: {done}",
    )


def _count(seconds: float, unit: Unit) -> str:
    return count(seconds / unit[0]) if isfinite(seconds) else "never"


def _long(seconds: float) -> str:
    """Return a time in whole weeks if possible, else in its usual unit with three digits.

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
    words = f"one interruption in {_long(budget.between)}"
    if budget.whole and budget.whole > budget.between:
        parts = 1.0 / (1.0 / budget.between - 1.0 / budget.whole)
        whole = f"and one of the job as a whole, at any size, in {_long(budget.whole)}"
        words += f": one of its GPUs and nodes in {_long(parts)}, {whole}"
    yield f"{words}; {budget.share:.1%} is effective training time"


def _deadline(budget: Budget) -> Iterator[str]:
    if budget.deadline is None or budget.within is None:
        return
    by, chance = _long(budget.deadline * DAY), f"{budget.chance:.0%}"
    likely = "less than 1%" if budget.within < 0.005 else f"{budget.within:.0%}"
    yield f"Done within {by}: {likely} likely."
    if not budget.needed:
        yield f"No number of replicas of this layout fits and is done by then with {chance} chance."
        return
    words = f"With {chance} chance the job needs {_size(budget.needed, budget.batch)}"
    if budget.keeping and budget.keeping != budget.needed:
        words += f"; with its own batch {_size(budget.keeping, budget.batch)}"
    yield f"{words}."


def _money(budget: Budget) -> Iterator[str]:
    if budget.money is None:
        return
    for_so_much = f"for {budget.money:,.0f} dollars or less with {budget.chance:.0%}"
    if not budget.affordable:
        yield f"No number of replicas of this layout fits and is done {for_so_much} chance."
        return
    gpus = [f"{count:,}" for count in budget.affordable]
    these = f"{', '.join(gpus[:-1])} or {gpus[-1]}" if len(gpus) > 1 else gpus[0]
    yield (
        f"Done {for_so_much} chance: on {these} GPUs, whose replicas divide the batch of "
        f"{budget.batch:,}; the soonest are {_size(budget.soonest, budget.batch)}."
    )


def _size(size: Mapping[str, float], batch: int | None) -> str:
    other = (
        "" if size["batch"] == batch else f" with a batch of {size['batch']:,.0f}, not {batch:,}"
    )
    rent = f" and cost {size['dollars']:,.0f} dollars" if "dollars" in size else ""
    gpus = several(int(size["gpus"]), "GPU")
    return f"{gpus}{other}, which take {_long(size['days'] * DAY)}{rent}"


def _job(budget: Budget) -> Iterator[Figure]:
    """Yield the model, the cluster, the layout and the price."""
    inputs = budget.inputs
    yield Figure("model", inputs.model, key="inputs.model")
    gpus = f"{several(budget.gpus, 'GPU')} ({inputs.device})"
    yield Figure("cluster", inputs.cluster, gpus, key="inputs.cluster")
    layout = [
        f"{key} {value}" for key, value in inputs.plan.items() if key in (*axes(), "schedule")
    ]
    if layout:
        yield Figure("layout", ", ".join(layout), key="inputs.plan")
    yield Figure("step", inputs.precision, inputs.step)
    if inputs.price:
        yield Figure("price", inputs.price, key="inputs.price")
