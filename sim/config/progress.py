"""Progress on standard error, where somebody looks at it: how much is done, the time left.

There is one bar at a time, the first that counts; what counts within it is silent. A bar appears
after a moment, and never in the processes of a sweep.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from threading import Event, Thread
from typing import Any, ParamSpec, TypeVar

Args = ParamSpec("Args")
Answer = TypeVar("Answer")
Amount = Callable[[float], Any]

_TICK = 1.0  # s between two looks at the clock while nothing is told
_bars: list[Any] = []  # those that are open, the last of them seen
_silent = False


def silence() -> None:
    """Show nothing in this process from now on: another one counts what it does."""
    global _silent
    _silent = True


def counted(answers: Iterable[Answer], *, total: int, unit: str, done: int = 0) -> Iterator[Answer]:
    """The same answers, counted as they come: `done` of `total` are there already."""
    with metered(total, unit=unit, done=done) as more:
        for answer in answers:
            yield answer
            more(1)


@contextmanager
def metered(total: float, *, unit: str, done: float = 0) -> Iterator[Amount]:
    """Gives what is to be told of every further amount that is done."""
    with _bar(total=total, initial=done, unit=unit) as bar:
        yield bar.update if bar else _unseen


@contextmanager
def polled(read: Callable[[], float], *, total: float, unit: str) -> Iterator[None]:
    """The same where a look shows how much is done, so that nobody has to tell."""
    with _bar(read, total=total, unit=unit):
        yield


def waited(what: str) -> Callable[[Callable[Args, Answer]], Callable[Args, Answer]]:
    """Shows how long a function has taken so far, until something within it is counted."""

    def decorate(function: Callable[Args, Answer]) -> Callable[Args, Answer]:
        @wraps(function)
        def waiting(*args: Args.args, **kwargs: Args.kwargs) -> Answer:
            with _bar(bar_format=f"{what}, {{elapsed}} so far"):
                return function(*args, **kwargs)

        return waiting

    return decorate


def _unseen(amount: float) -> None:
    """Nobody looks."""


@contextmanager
def _bar(
    read: Callable[[], float] | None = None, *, total: float | None = None, **style: Any
) -> Iterator[Any]:
    """A bar, or None where it would not be seen; one that counts takes the place of one that only
    shows the time."""
    counts = bool(_bars) and _bars[-1].total is not None
    if _silent or counts or (_bars and total is None) or not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm

    if _bars:
        _bars[-1].clear()
    ended = Event()
    with tqdm(total=total, position=0, delay=_TICK, leave=False, **style) as bar:
        _bars.append(bar)
        Thread(target=_ticks, args=(bar, read, ended), daemon=True).start()
        try:
            yield bar
        finally:
            ended.set()
            _bars[:] = [one for one in _bars if one is not bar]  # tqdm's equal by their position


def _ticks(bar: Any, read: Callable[[], float] | None, ended: Event) -> None:
    while not ended.wait(_TICK):
        if _bars and _bars[-1] is bar:
            bar.n = bar.n if read is None else min(read(), bar.total)
            bar.refresh()
