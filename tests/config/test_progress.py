"""Progress is shown where somebody looks, while answers take their time; nothing else changes."""

import io
import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sim.config import counting, progress
from sim.config.counting import counted, metered, part, polled, whole
from sim.config.progress import waited

HANGS = 60.0  # s; what is drawn a thousand times a second never takes so long


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def until(self, text: str, times: int = 1, look: Callable[[], Any] | None = None) -> None:
        """Wait until it was shown so often, and `look` meanwhile; fails where it never is."""
        end = time.monotonic() + HANGS
        while self.getvalue().count(text) < times:
            assert time.monotonic() < end, f"{text!r} is not in {self.getvalue()[-200:]!r}"
            if look:
                look()


def drawn_on(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal that is drawn on a thousand times a second. It is no fixture: between the setup
    of a test and its call pytest puts back what it captures with."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "_TICK", 1e-3)
    return terminal


def test_waiting_for_what_is_never_shown_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "HANGS", 0.0)
    with pytest.raises(AssertionError, match="'a bar' is not in ''"):
        Terminal().until("a bar")


def test_answers_are_passed_on_as_they_are_and_nothing_is_written_to_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert list(counted(iter("abc"), total=3, unit="letter")) == ["a", "b", "c"]
    assert sys.stderr.getvalue() == ""


def test_a_terminal_is_never_left_silent_while_an_answer_is_awaited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = drawn_on(monkeypatch)

    def slow() -> Iterator[int]:
        yield 0
        shown.until("\r", shown.getvalue().count("\r") + 3)  # the bar is drawn again meanwhile
        yield 1

    assert list(counted(slow(), total=2, unit="row")) == [0, 1]
    assert "1/2" in shown.getvalue()


def test_what_counts_takes_the_place_of_a_clock_and_hides_what_it_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = drawn_on(monkeypatch)

    @waited("the step")
    def step() -> None:
        shown.until("the step, 00:")
        for _ in counted(range(1), total=1, unit="run"):
            with polled(lambda: 3.0, total=7.0, unit="sample"):
                shown.until("0/1 [")
        for _ in counted(range(1), total=1, unit="layout"):
            shown.until("0/1 [")
            shown.until("layout")

    step()
    assert "sample" not in shown.getvalue()
    with polled(lambda: 3.0, total=7.0, unit="sample"):
        shown.until("3.0/7.0 [")
    assert not progress.under_way


def test_shares_that_add_up_to_more_than_all_leave_no_negative_time() -> None:
    with metered(1.0, unit="share") as more:
        for _ in range(11):
            more(0.1)
        bar = progress.under_way[-1].bar
        assert bar is not None
        assert bar.n == 1.0


def test_parts_of_a_whole_move_its_bar_by_their_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever their units are; what is counted within what is counted has no part of its own."""
    shown = drawn_on(monkeypatch)

    @whole("the question")
    def question() -> None:
        shown.until("the question   0%")
        with part(0.2):
            for _ in counted(range(4), total=4, unit="family"):
                for _ in counted(range(3), total=3, unit="layout"):
                    pass
        shown.until("the question  20%")
        with part(0.6), metered(10.0, unit="byte") as more:
            more(5.0)
            shown.until("the question  50%")
        shown.until("the question  80%")
        with part(0.2):
            pass  # nothing was to be done
        shown.until("the question 100%")

    question()
    assert "family" not in shown.getvalue()
    assert not progress.under_way


@pytest.mark.parametrize("by_itself", [True, False])
def test_what_is_being_done_is_told_in_words(
    by_itself: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = drawn_on(monkeypatch)
    with counting.told(lambda: "step 2: 345 operators", by_itself=by_itself) as look:
        shown.until("step 2: 345 operators, 00:", look=None if by_itself else look)


def test_a_file_gets_lines_that_end_and_no_more_than_a_minute_has_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = io.StringIO()
    monkeypatch.setattr(sys, "stderr", file)
    monkeypatch.setattr(progress, "_FIRST", 0.0)
    monkeypatch.setattr(progress, "_NEXT", 0.0)
    with metered(4.0, unit="kernel") as more:
        more(1.0)
        (counter,) = progress.under_way
        counter.look()
    assert re.match(r"kernel 1 of 4, 00:\d\d so far, \S+ left\n", file.getvalue())
    file.truncate(0)
    monkeypatch.setattr(progress, "_NEXT", HANGS)
    with counting.told(lambda: "step 2"):
        (counter,) = progress.under_way
        for _ in range(3):
            counter.look()
    assert file.getvalue().strip("\0").count("step 2") == 1


@pytest.mark.parametrize("terminal", [True, False])
def test_processes_of_a_sweep_and_what_is_no_terminal_stay_silent(
    monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    shown = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr(progress, "_silent", terminal)
    monkeypatch.setattr(progress, "_TICK", 0.0)
    with metered(2.0, unit="byte") as more:
        more(1.0)
    assert waited("a moment")(lambda: 3)() == 3
    assert shown.getvalue() == ""
