"""Progress on standard error: how much is done, and the time left.

One bar is shown at a time: the bar of the outermost work that counts its progress. Work within it
shows nothing, or, where a question has `part`s, moves the bar by its part. A bar appears after a
moment, and never in the processes of a sweep. A pipe or a file gets lines instead of a bar, the
first line after a quarter of a minute.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from math import inf
from threading import Event, Lock, Thread
from typing import Any, ParamSpec, TypeVar

Args = ParamSpec("Args")
Answer = TypeVar("Answer")

_TICK = 1.0  # s between two updates of the display
_FIRST, _NEXT = 15.0, 30.0  # s until the first line that a file gets, and until each further one
WHOLE = "{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}"
_LINE = "{unit} {n:,.0f} of {total:,.0f}, {elapsed} so far, {remaining} left"
_WHOLE_LINE = "{desc} {percentage:.0f} %, {elapsed} so far, {remaining} left"
_silent = False


@dataclass(slots=True, eq=False)
class _Open:
    """Work that is under way: `done` of a `total` (None: nothing is counted). It has a `bar` of its
    own, or moves the work `above` it by a `share` of that work's total."""

    total: float | None
    bar: "_Bar | None" = None
    above: "_Open | None" = None
    share: float = 0.0
    done: float = 0.0
    part: float = 0.0  # share of the total for the next inner work that counts
    words: Callable[[], str] | None = None  # a description of what is being done
    next: float = 0.0  # when a file gets another line; 0 for a terminal

    def update(self, amount: float) -> None:
        self.done += amount
        if self.bar is not None:
            self.bar.update(amount)
        elif self.above is not None and self.total:
            self.above.update(amount * self.share / self.total)

    def look(self) -> None:
        """Show the current state, if this work has a bar."""
        if self.bar is None or (self.total is None and under_way[-1:] != [self]):
            return
        if self.next:
            if time.monotonic() < self.next:
                return
            self.next = time.monotonic() + _NEXT
        self.bar.refresh(None if self.words is None else self.words())


under_way: list[_Open] = []  # the last work is shown, or moves the bar of the work above it


def silence() -> None:
    """Show nothing in this process from now on: another process counts its work."""
    global _silent
    _silent = True


def waited(label: str) -> Callable[[Callable[Args, Answer]], Callable[Args, Answer]]:
    """Show how long a function has taken so far, until work within it is counted."""
    return around(lambda: opened(bar_format=f"{label}, {{elapsed}} so far"))


def around(
    open_: Callable[[], Any],
) -> Callable[[Callable[Args, Answer]], Callable[Args, Answer]]:
    def decorate(function: Callable[Args, Answer]) -> Callable[Args, Answer]:
        @wraps(function)
        def within(*args: Args.args, **kwargs: Args.kwargs) -> Answer:
            with open_():
                return function(*args, **kwargs)

        return within

    return decorate


@contextmanager
def opened(
    read: Callable[[], float] | None = None,
    *,
    total: float | None = None,
    words: Callable[[], str] | None = None,
    by_itself: bool = True,
    **style: Any,
) -> Iterator[_Open | None]:
    """Work that is under way from now on, or None where it would not be shown. Work that counts
    takes the place of work that only shows the time."""
    last = under_way[-1] if under_way else None
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
        begins, bar_format = time.monotonic() + _FIRST, style.get("bar_format")
        lines = {None: _LINE, WHOLE: _WHOLE_LINE}
        style |= {"file": _Lines(), "bar_format": lines.get(bar_format, bar_format), "delay": inf}
    with closing(_Bar(total=total, position=0, leave=False, **style)) as bar:
        counter = _Open(total, bar, done=bar.n, words=words, next=begins)
        with _listed(counter, read, by_itself=by_itself):
            yield counter


class _Bar:
    """A bar of tqdm, which is loaded when the bar is first drawn: a short question draws none."""

    def __init__(self, **style: Any) -> None:
        self.n, self._style = style.get("initial", 0), style
        self._began, self._lock = time.monotonic(), Lock()
        self._shown: Any = None

    def update(self, amount: float) -> None:
        self.n = min(self.n + amount, self._style.get("total") or inf)  # shares may add up to more
        if self._shown is not None:
            self._shown.update(self.n - self._shown.n)
        elif time.monotonic() >= self._began + self._style.get("delay", _TICK):
            self._drawn()

    def refresh(self, words: str | None) -> None:
        """Draw the bar now, with `words` about what is being done."""
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
    """Standard error as a file that gets a line whenever tqdm draws its bar."""

    encoding = "utf-8"

    def write(self, text: str) -> None:
        if line := text.strip():
            with suppress(OSError):  # the reader of the pipe may be gone
                print(line, file=sys.stderr, flush=True)

    def flush(self) -> None:
        sys.stderr.flush()


@contextmanager
def _listed(
    counter: _Open, read: Callable[[], float] | None, *, by_itself: bool = True
) -> Iterator[None]:
    ended = Event()
    under_way.append(counter)
    if by_itself and (read is not None or counter.bar is not None):
        Thread(target=_ticks, args=(counter, read, ended), daemon=True).start()
    try:
        yield
    finally:
        ended.set()
        under_way.remove(counter)


def _ticks(counter: _Open, read: Callable[[], float] | None, ended: Event) -> None:
    while not ended.wait(_TICK):
        if read is not None and counter.total is not None:
            counter.update(min(read(), counter.total) - counter.done)
        counter.look()
