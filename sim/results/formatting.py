"""Figures as people read them: rounded so that they add up, with separators, or drawn as bars."""

from collections.abc import Sequence
from math import isfinite
from typing import Any

from sim.config.readable import human_bytes, human_seconds
from sim.config.units import DAY, HOUR, MINUTE

Cells = tuple[str, ...]  # a row of a table

_BAR = 30  # characters of the longest bar
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def apportioned(values: Sequence[float], digits: int) -> list[float]:
    """Return values rounded so that they add up to their rounded sum (largest remainders).

    >>> apportioned([33.333, 33.333, 33.333], 0), apportioned([0.06, 0.06, 0.88], 1)
    ([34.0, 33.0, 33.0], [0.1, 0.0, 0.9])
    """
    scale = 10**digits
    floors = [int(value * scale) for value in values]
    left = round(round(sum(values), digits) * scale) - sum(floors)
    order = sorted(range(len(values)), key=lambda i: floors[i] - values[i] * scale)
    for i in order[: max(left, 0)]:
        floors[i] += 1
    return [floor / scale for floor in floors]


def bar(share: float) -> str:
    """Return a bar of block characters, in eighths of a character.

    >>> bar(0.05)
    '█▌'
    """
    eighths = round(share * _BAR * 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def count(value: float) -> str:
    """Return a number with three significant digits, or with all of its integer digits.

    >>> count(7303.9), count(3.5664), count(114.12), count(64)
    ('7,304', '3.57', '114', '64')
    """
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def rate(value: float) -> str:
    """Return a rate as text; 0 stands for an unknown rate.

    >>> rate(7303.9), rate(0.0)
    ('7,304', 'unknown')
    """
    return count(value) if value else "unknown"


def money(amount: float) -> str:
    """Return an amount of money with three significant digits, or with all of its integer digits.

    >>> money(0.6), money(0.5623), money(12.87), money(99.99), money(4321.0)
    ('0.600', '0.562', '12.9', '100', '4,321')
    """
    return f"{amount:#.3g}".rstrip(".") if amount < 100 else f"{amount:,.0f}"


def several(number: float, noun: str) -> str:
    """Return a number of things.

    >>> several(1, "GPU"), several(16384, "GPU")
    ('1 GPU', '16,384 GPUs')
    """
    return f"{count(number)} {noun}{'s' * (number != 1)}"


def loss(value: float, digits: int = 4) -> str:
    """Return a loss as text; a loss that is not finite has diverged.

    >>> loss(0.51234), loss(float("nan"))
    ('0.5123', 'diverged')
    """
    return f"{value:.{digits}g}" if isfinite(value) else "diverged"


def percent(share: float) -> str:
    """Return a fraction in per cent.

    >>> percent(0.39374)
    '39.4 %'
    """
    return f"{100 * share:.1f} %"


def large(number: float) -> str:
    """Return a count of parameters as people say it.

    >>> large(8030261248), large(671e9), large(25557032), large(1.05e12)
    ('8.03 billion', '671 billion', '25.6 million', '1.05 trillion')
    """
    for unit, name in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if number >= unit:
            return f"{number / unit:.3g} {name}"
    return f"{number:,.0f}"


Unit = tuple[float, str]


def long_unit(seconds: float) -> Unit:
    """Return the unit in which a reader would give the time of a training.

    >>> long_unit(5e6), long_unit(1e4), long_unit(1e3), long_unit(46.0)
    ((86400.0, 'days'), (3600.0, 'hours'), (60.0, 'minutes'), (1.0, 'seconds'))
    """
    units = ((DAY, "days"), (HOUR, "hours"), (MINUTE, "minutes"))
    return next((unit for unit in units if seconds >= 2 * unit[0]), (1.0, "seconds"))


def energy_unit(joules: float) -> Unit:
    """Return the unit in which a reader would give the energy of a training.

    >>> energy_unit(1e12), energy_unit(1e9)
    ((3600000000.0, 'MWh'), (3600000.0, 'kWh'))
    """
    return (3.6e9, "MWh") if joules >= 3.6e10 else (3.6e6, "kWh")


def money_unit(dollars: float) -> Unit:
    """Return the unit in which a reader would give the rent of a training.

    >>> money_unit(5e6), money_unit(311.0)
    ((1000000.0, 'million dollars'), (1.0, 'dollars'))
    """
    units = ((1e6, 1e6, "million dollars"), (1e4, 1e3, "thousand dollars"))
    found = ((unit, name) for least, unit, name in units if dollars >= least)
    return next(found, (1.0, "dollars"))


def time_unit(seconds: float) -> tuple[float, str]:
    """Return the unit in which a reader would give a time: its seconds and its name.

    >>> time_unit(0.02)
    (0.001, 'ms')
    """
    units = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
    return next((unit for unit in units if seconds >= unit[0]), units[-1])


_FORMS = {"s": human_seconds, "%": percent, "B": human_bytes, "USD": money}


def figure(value: Any, unit: str = "") -> str:
    """Return a figure as text, by its unit: "s", "%" (of a share), "B", "USD", or "" for none.

    >>> figure(0.5, "s"), figure(0.5, "%"), figure(4096, "B"), figure(0.5), figure(None)
    ('500 ms', '50.0 %', '4.00 KiB', '0.5', '-')
    """
    if value is None or value != value:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if unit:
        return _FORMS[unit](value)
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else large(value)
    return f"{value:,}" if isinstance(value, int) else str(value)
