"""Progress on standard error: how much is done, the time left.

There is one bar at a time, the first that counts; what counts within it is silent, or, where the
work of a question has `part`s, moves it by its part. A bar appears after a moment, and never in the
processes of a sweep. A pipe or a file gets lines in its place, the first after a quarter of a
minute.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from math import inf
from threading import Event, Lock, Thread
from typing import Any, ParamSpec, TypeVar

Args = ParamSpec("Args")
Answer = TypeVar("Answer")
Amount = Callable[[float], Any]

_TICK = 1.0  # s between two looks at the clock while nothing is told
_FIRST, _NEXT = 15.0, 30.0  # s until the first line that a file gets, and until each further one
_WHOLE = "{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}"
_LINE = "{unit} {n:,.0f} of {total:,.0f}, {elapsed} so far, {remaining} left"
_WHOLE_LINE = "{desc} {percentage:.0f} %, {elapsed} so far, {remaining} left"
_silent = False


@dataclass(slots=True, eq=False)
class _Open:
    """Something that is under way: so much of a `total`, or of nothing that is counted. It is shown
    by a `bar` of its own or moves that `above`, by a `share` of its total."""

    total: float | None
    bar: "_Bar | None" = None
    above: "_Open | None" = None
    share: float = 0.0
    done: float = 0.0
    part: float = 0.0  # of the total, for what counts within
    words: Callable[[], str] | None = None  # what is being done
    next: float = 0.0  # when a file gets another line; 0 where somebody looks

    def update(self, amount: float) -> None:
        self.done += amount
        if self.bar is not None:
            self.bar.update(amount)
        elif self.above is not None and self.total:
            self.above.update(amount * self.share / self.total)

    def look(self) -> None:
        """Show what is being done now, where it can be seen."""
        if self.bar is None or (self.total is None and _under_way[-1:] != [self]):
            return
        if self.next:
            if time.monotonic() < self.next:
                return
            self.next = time.monotonic() + _NEXT
        self.bar.refresh(None if self.words is None else self.words())


_under_way: list[_Open] = []  # the last of them is seen, or moves what is


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
    with _opened(total=total, initial=done, unit=unit) as counter:
        yield counter.update if counter else _unseen


@contextmanager
def polled(read: Callable[[], float], *, total: float, unit: str) -> Iterator[None]:
    """The same where a look shows how much is done, so that nobody has to tell."""
    with _opened(read, total=total, unit=unit):
        yield


def waited(what: str) -> Callable[[Callable[Args, Answer]], Callable[Args, Answer]]:
    """Shows how long a function has taken so far, until something within it is counted."""
    return _around(lambda: _opened(bar_format=f"{what}, {{elapsed}} so far"))


@contextmanager
def told(words: Callable[[], str], *, by_itself: bool = True) -> Iterator[Callable[[], Any]]:
    """Shows what is being done, in words that are asked for again and again, and how long it has
    taken. Gives what asks, for those who fork and want no thread that does so `by_itself`."""
    form = "{desc}, {elapsed} so far"
    with _opened(words=words, by_itself=by_itself, bar_format=form) as counter:
        yield counter.look if counter else (lambda: None)


def whole(what: str) -> Callable[[Callable[Args, Answer]], Callable[Args, Answer]]:
    """Shows how much of a function is done, as its `part`s go on, and the time left for all."""
    return _around(lambda: _opened(total=1.0, desc=what, bar_format=_WHOLE))


@contextmanager
def part(share: float) -> Iterator[None]:
    """What is counted first within this moves the bar of a `whole` by so much of it in the end; the
    shares of all parts add up to 1."""
    current = _under_way[-1] if _under_way else None
    if current is None or current.total is None:
        yield
        return
    before, current.part = current.done, share * current.total
    try:
        yield
    finally:
        current.update(before + share * current.total - current.done)
        current.part = 0.0


def _around(
    opened: Callable[[], Any],
) -> Callable[[Callable[Args, Answer]], Callable[Args, Answer]]:
    def decorate(function: Callable[Args, Answer]) -> Callable[Args, Answer]:
        @wraps(function)
        def within(*args: Args.args, **kwargs: Args.kwargs) -> Answer:
            with opened():
                return function(*args, **kwargs)

        return within

    return decorate


def _unseen(amount: float) -> None:
    """Nobody looks."""


@contextmanager
def _opened(
    read: Callable[[], float] | None = None,
    *,
    total: float | None = None,
    words: Callable[[], str] | None = None,
    by_itself: bool = True,
    **style: Any,
) -> Iterator[_Open | None]:
    """What is under way from now on, or None where it would not be seen; what counts takes the
    place of what only shows the time."""
    last = _under_way[-1] if _under_way else None
    if last is not None and last.total is not None:
        if total is None or not last.part:
            yield None
            return
        counter = _Open(total, above=last, share=last.part)
        last.part = 0.0
        with _listed(counter, read):
            yield counter
        return
    if _silent or (last is not None and total is None):
        yield None
        return
    if last is not None and last.bar is not None:
        last.bar.clear()
    begins = 0.0
    if not sys.stderr.isatty():
        begins, own = time.monotonic() + _FIRST, style.get("bar_format")
        lines = {None: _LINE, _WHOLE: _WHOLE_LINE}
        style |= {"file": _Lines(), "bar_format": lines.get(own, own), "delay": inf}
    with closing(_Bar(total=total, position=0, leave=False, **style)) as bar:
        counter = _Open(total, bar, done=bar.n, words=words, next=begins)
        with _listed(counter, read, by_itself=by_itself):
            yield counter


class _Bar:
    """A bar of tqdm, which is loaded when there is something to see: a short answer shows none."""

    def __init__(self, **style: Any) -> None:
        self.n, self._style = style.get("initial", 0), style
        self._began, self._lock = time.monotonic(), Lock()
        self._shown: Any = None

    def update(self, amount: float) -> None:
        self.n += amount
        if self._shown is not None:
            self._shown.update(self.n - self._shown.n)
        elif time.monotonic() >= self._began + self._style.get("delay", _TICK):
            self._drawn()

    def refresh(self, words: str | None) -> None:
        """Draw it now, with what is being done."""
        bar = self._drawn()
        if words is not None:
            bar.set_description_str(words, refresh=False)
        bar.refresh()

    def clear(self) -> None:
        if self._shown is not None:
            self._shown.clear()

    def close(self) -> None:
        if self._shown is not None:
            self._shown.close()

    def _drawn(self) -> Any:
        with self._lock:
            if self._shown is None:
                from tqdm import tqdm

                self._shown = tqdm(**{"delay": 0.0, **self._style})
                self._shown.start_t -= time.monotonic() - self._began
                self._shown.n = self.n
        return self._shown


class _Lines:
    """A file that gets lines in place of what is drawn again and again."""

    encoding = "utf-8"

    def write(self, text: str) -> None:
        if line := text.strip():
            with suppress(OSError):  # whoever read it may be gone
                print(line, file=sys.stderr, flush=True)

    def flush(self) -> None:
        sys.stderr.flush()


@contextmanager
def _listed(
    counter: _Open, read: Callable[[], float] | None, *, by_itself: bool = True
) -> Iterator[None]:
    ended = Event()
    _under_way.append(counter)
    if by_itself and (read is not None or counter.bar is not None):
        Thread(target=_ticks, args=(counter, read, ended), daemon=True).start()
    try:
        yield
    finally:
        ended.set()
        _under_way.remove(counter)


def _ticks(counter: _Open, read: Callable[[], float] | None, ended: Event) -> None:
    while not ended.wait(_TICK):
        if read is not None and counter.total is not None:
            counter.update(min(read(), counter.total) - counter.done)
        counter.look()
