"""Numbers as people write them: 500B, 1.4 trillion, 96%."""

import re

from sim.config.gate import SEPARATORS, fault_of, shown

_SCALES = {
    "k": 1e3, "thousand": 1e3, "m": 1e6, "million": 1e6, "b": 1e9, "g": 1e9, "billion": 1e9,
    "t": 1e12, "trillion": 1e12, "%": 0.01,
}  # fmt: skip

_SCALED = re.compile(rf"([\d.,]+)\s*({'|'.join(sorted(_SCALES, key=len, reverse=True))})", re.I)


def number_in(text: str) -> float:
    """The positive number in a text, as people write it. Raises `ValueError` for other texts.

    >>> number_in("500B"), number_in("1.4 trillion"), number_in("15,360"), number_in("96%")
    (500000000000.0, 1400000000000.0, 15360.0, 0.96)
    """
    try:
        plain, factor = str(text).strip(), 1.0
        if written := _SCALED.fullmatch(plain):
            plain, factor = written[1], _SCALES[written[2].lower()]
        value = float(SEPARATORS.sub("", plain)) * factor
    except (TypeError, ValueError):
        raise ValueError(f"{shown(text)} is no number") from None
    if not value > 0 or fault_of(value):
        raise ValueError(f"{shown(text)} {fault_of(value) or 'is not positive'}")
    return value


def share_in(text: str) -> float:
    """The share that a text says: a number with %, or below 1. Raises `ValueError` for other texts,
    such as "3", which may or may not mean per cent.

    >>> share_in("3%"), share_in("0.03"), share_in("150%")
    (0.03, 0.03, 1.5)
    """
    share = number_in(text)
    if share < 1.0 or "%" in str(text):
        return share
    raise ValueError(f"{shown(text)} may be {share:g}% or {100.0 * share:g}%")
