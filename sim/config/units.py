"""Units at the edges, SI floats inside.

Files state ``bandwidth = "400 Gb/s"``; once validated, every quantity is a plain float in bytes,
seconds, FLOP/s or watts. A dataclass field of type `Bytes` or `BytesPerSecond` reads such a text
when it is validated, and refuses a number without its unit.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from math import isfinite
from typing import Annotated, Any

from sim.config import gate
from sim.config.dataclass import dataclass
from sim.config.errors import InputError


@dataclass(frozen=True, slots=True)
class Ge:
    """At least `ge`."""

    ge: float


@dataclass(frozen=True, slots=True)
class Gt:
    """Above `gt`."""

    gt: float


@dataclass(frozen=True, slots=True)
class Le:
    """At most `le`."""

    le: float


@dataclass(frozen=True, slots=True)
class Lt:
    """Below `lt`."""

    lt: float


MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
_SPANS = {
    f"{name}{ending}": seconds
    for name, seconds in (
        ("second", 1.0), ("minute", MINUTE), ("hour", HOUR), ("day", DAY), ("week", 7 * DAY),
    )
    for ending in ("", "s")
}  # fmt: skip

# Per dimension, the factor that converts each accepted unit to SI.
_ACCEPTED: dict[str, dict[str, float]] = {
    "B": {"B": 1.0, "b": 0.125},
    "B/s": {"B/s": 1.0, "b/s": 0.125, "bit/s": 0.125, "bps": 0.125},
    "s": {"s": 1.0, "min": MINUTE, "h": HOUR, "d": DAY, "w": 7 * DAY, **_SPANS},
    "FLOP/s": {"FLOP/s": 1.0},
    "Hz": {"Hz": 1.0},
    "W": {"W": 1.0},
    "USD/h": {"USD/h": 1.0},
    "USD/J": {"USD/kWh": 1.0 / (1000.0 * HOUR)},
}
_QUANTITY = re.compile(
    r"\s*([-+]?(?:\d+(?:_\d+)*\.?(?:\d+(?:_\d+)*)?|\.\d+(?:_\d+)*))([eE][-+]?\d+)?"
    r"\s*([a-zA-Z%µμ][-^/()\w·]*)?\s*"
)
_ENDLESS = re.compile(r"\s*[-+]?(?:inf|nan|∞)\b.*", re.I)
_PREFIXES = {  # powers of ten
    "": 0, "Q": 30, "R": 27, "Y": 24, "Z": 21, "E": 18, "P": 15, "T": 12, "G": 9, "M": 6, "K": 3,
    "k": 3, "c": -2, "m": -3, "u": -6, "µ": -6, "μ": -6, "n": -9, "p": -12, "f": -15,
    "a": -18, "z": -21, "y": -24, "r": -27, "q": -30,
}  # fmt: skip
_BINARY = {f"{letter}i": 2.0 ** (10 * power) for power, letter in enumerate("KMGTPEZY", 1)}
_WORDS = {*_SPANS, "bit/s", "bps"}  # units that no message needs to name
EXAMPLES = {
    "": "300 billion",
    "B": "80 GiB",
    "B/s": "400 Gb/s",
    "s": "2 us",
    "FLOP/s": "312 TFLOP/s",
    "Hz": "1.41 GHz",
    "W": "400 W",
    "USD/h": "2.5 USD/h",
    "USD/J": "0.10 USD/kWh",
}


@lru_cache(maxsize=4096)
def quantity(text: str, unit: str) -> float:
    """Read a number with its unit; return it in SI.

    Raises `ValueError` where the text is not a number or its unit measures something else.

    >>> quantity("400 Gb/s", "B/s")
    50000000000.0
    >>> quantity("80 GiB", "B")
    85899345920.0
    >>> quantity("2 us", "s")
    2e-06
    >>> quantity("1e-3 Gb/s", "B/s")
    125000.0
    >>> quantity("400 Gbps", "B/s"), quantity("3 weeks", "s"), quantity("1 day", "s")
    (50000000000.0, 1814400.0, 86400.0)
    """
    accepted = _ACCEPTED[unit]
    read = _QUANTITY.fullmatch(gate.SEPARATORS.sub("", text))
    if read is None:
        fault = "must be a finite number" if _ENDLESS.fullmatch(text) else "is not a quantity"
        raise ValueError(f"{text!r} {fault}; write it like {EXAMPLES[unit]!r}")
    mantissa, power, written = (part or "" for part in read.groups())
    prefix, symbol = _split(written, accepted)
    if symbol not in accepted:
        raise ValueError(_wrong_unit(text, written, symbol, unit))
    if prefix in _BINARY:
        value = float(mantissa + power) * _BINARY[prefix]
    elif power:
        value = float(mantissa + power) * float(f"1e{_PREFIXES[prefix]}")
    else:
        value = float(f"{mantissa}e{_PREFIXES[prefix]}")  # the float nearest to the written number
    if not isfinite(value):
        raise ValueError(f"{text!r} must be a finite number; write it like {EXAMPLES[unit]!r}")
    return value * accepted[symbol]


def _split(written: str, accepted: Mapping[str, float]) -> tuple[str, str]:
    """The prefix of a unit, and the unit without it."""
    if written in accepted:
        return "", written
    for size, prefixes in ((2, _BINARY), (1, _PREFIXES)):
        if written[:size] in prefixes:
            return written[:size], written[size:]
    return "", written


def quantity_of(where: str, text: str, unit: str, like: str = "") -> float:
    """The SI value of an option's text; errors give `like` as an example. Raises `InputError`."""
    try:
        return quantity(text, unit)
    except ValueError as error:
        example = EXAMPLES[unit]
        fault = ValueError(str(error).replace(repr(example), repr(like or example)))
        raise InputError.of(where, fault) from None


def _wrong_unit(text: str, written: str, symbol: str, unit: str) -> str:
    if not symbol:
        return f"{text!r} has no unit; write it like {EXAMPLES[unit]!r}"
    accepted = _ACCEPTED[unit]
    import difflib

    near = difflib.get_close_matches(symbol, accepted, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"write it like {EXAMPLES[unit]!r}"
    symbols = " or ".join(name for name in accepted if name not in _WORDS)
    return f"{text!r} is in {written!r}, not in {symbols}; {hint}"


class InSI(float):
    """A number that is known to be in SI units, so that no unit is written after it."""


class Unit:
    """Marks a float field that is written with a unit."""

    def __init__(self, symbol: str, *, positive: bool = True) -> None:
        self.symbol, self.positive = symbol, positive

    def read(self, value: Any) -> float:
        """The SI value of a text. Raises `ValueError`, also for a number without a unit."""
        if isinstance(value, InSI):
            return float(value)
        example = EXAMPLES[self.symbol]
        if not isinstance(value, str):
            raise ValueError(f"{value!r} has no unit; write it like {example!r}")
        read = quantity(value, self.symbol)
        if read < 0 or (self.positive and read == 0):
            kind = "positive" if self.positive else "non-negative"
            raise ValueError(f"{value!r} must be a finite {kind} number; write it like {example!r}")
        if fault := gate.fault_of(read):
            raise ValueError(f"{value!r} {fault}, in SI units; write it like {example!r}")
        return read


class Spoken(Unit):
    """Marks a positive number that a file may also write in words, such as "300 billion"."""

    def __init__(self) -> None:
        super().__init__("")

    def read(self, value: Any) -> float:
        from sim.config.spoken import number_in

        try:
            return number_in(str(value))
        except ValueError as error:
            raise ValueError(f"{error}; write it like 300e9 or '15T'") from None


Number = Annotated[float, Spoken()]
Bytes = Annotated[float, Unit("B", positive=False)]
Seconds = Annotated[float, Unit("s", positive=False)]
PositiveSeconds = Annotated[float, Unit("s")]
BytesPerSecond = Annotated[float, Unit("B/s")]
FlopsPerSecond = Annotated[float, Unit("FLOP/s")]
Hertz = Annotated[float, Unit("Hz")]
Watts = Annotated[float, Unit("W")]
DollarsPerHour = Annotated[float, Unit("USD/h", positive=False)]
DollarsPerJoule = Annotated[float, Unit("USD/J", positive=False)]
Share = Annotated[float, Gt(0), Le(1)]
Portion = Annotated[float, Ge(0), Le(1)]
