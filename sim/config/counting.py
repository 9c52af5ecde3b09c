"""Work that counts its progress, or tells what it is doing; `sim.config.progress` shows it."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from sim.config.progress import WHOLE, Answer, Args, around, opened, under_way

Amount = Callable[[float], Any]


def counted(answers: Iterable[Answer], *, total: int, unit: str, done: int = 0) -> Iterator[Answer]:
    """Yield the `answers` and count them as they come; `done` of `total` were there before."""
    with metered(total, unit=unit, done=done) as more:
        for answer in answers:
            yield answer
            more(1)


@contextmanager
def metered(total: float, *, unit: str, done: float = 0) -> Iterator[Amount]:
    """Count within the block; gives the function to call with each further amount of work done."""
    with opened(total=total, initial=done, unit=unit) as counter:
        yield counter.update if counter else _unseen


@contextmanager
def polled(read: Callable[[], float], *, total: float, unit: str) -> Iterator[None]:
    """Count within the block by calling `read`, which returns how much is done, every second."""
    with opened(read, total=total, unit=unit):
        yield


@contextmanager
def told(words: Callable[[], str], *, by_itself: bool = True) -> Iterator[Callable[[], Any]]:
    """Show what is being done, by calling `words` every second, and how long it has taken. Gives a
    function that updates the display; programs that fork call it in place of a thread."""
    form = "{desc}, {elapsed} so far"
    with opened(words=words, by_itself=by_itself, bar_format=form) as counter:
        yield counter.look if counter else (lambda: None)


def whole(label: str) -> Callable[[Callable[Args, Answer]], Callable[Args, Answer]]:
    """Show how much of a function is done, as its `part`s go on, and the time left."""
    return around(lambda: opened(total=1.0, desc=label, bar_format=WHOLE))


@contextmanager
def part(share: float) -> Iterator[None]:
    """A part of a `whole`: the first counted work within the block moves the bar by `share` in all.
    The shares of all parts add up to 1."""
    current = under_way[-1] if under_way else None
    if current is None or current.total is None:
        yield
        return
    before, current.part = current.done, share * current.total
    try:
        yield
    finally:
        current.update(before + share * current.total - current.done)
        current.part = 0.0


def _unseen(amount: float) -> None:
    """Ignore an amount of work that nobody sees."""
