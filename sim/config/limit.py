"""Questions that would take long, or more memory than the machine has, are refused at their start.

Estimates are right to an order of magnitude, from the speed of one core. The option `--limit` of a
command, or `allow`, sets how long a question may take.
"""

import os
from contextvars import ContextVar

from sim.config.errors import InputError

_MARGIN = 1.1  # suggested limit / estimate, because the printed estimate is rounded
USUAL = 600.0  # s; the limit unless the user sets one
_allowed: ContextVar[float] = ContextVar("limit", default=USUAL)


class TooLongError(InputError):
    """A question would take longer than is allowed."""


def allow(seconds: float) -> None:
    """Let questions take up to `seconds` from now on."""
    _allowed.set(seconds)


def allowed() -> float:
    """How long a question may take (s)."""
    return _allowed.get()


def refuse_long(where: str, load: str, seconds: float) -> None:
    """Raise `TooLongError` where `load` would take longer than is allowed.

    >>> try: refuse_long("run", "it", 601.0)
    ... except TooLongError as error: print(str(error).split(";")[0])
    run: it would take a little more than the 10 min that are allowed
    """
    if seconds > allowed():
        needed = f'--limit "{_rounded(_MARGIN * seconds)}"'
        remedy = f"ask for less, or allow it: {needed}"
        more, most = _rounded(seconds), _rounded(allowed())
        about = (
            f"a little more than the {most} that" if more == most else f"about {more}, and {most}"
        )
        told = f"{load} would take {about} are allowed"
        raise TooLongError(where, told, remedy)


def refuse_large(where: str, load: str, size: float) -> None:
    """Raise `InputError` where `load` would take more than this machine's memory."""
    have = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    if size > have:
        from sim.config.readable import human_bytes

        told = f"{load} would take {human_bytes(size)}, but this machine has {human_bytes(have)}"
        raise InputError(where, told, "ask for less")


def _rounded(seconds: float) -> str:
    """Two digits in the unit a person would choose.

    >>> _rounded(7300.0), _rounded(90.0), _rounded(1.25), _rounded(5990.0), _rounded(1e30)
    ('2.0 h', '90 s', '1.2 s', '100 min', '1.2e+25 d')
    """
    for scale, unit in ((86400.0, "d"), (3600.0, "h"), (600.0, "min")):
        if seconds >= 2 * scale or (unit == "min" and seconds >= scale):
            count = seconds / (60.0 if unit == "min" else scale)
            return f"{float(f'{count:.2g}'):g} {unit}" if count >= 10 else f"{count:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10.0 else f"{seconds:.2g} s"
