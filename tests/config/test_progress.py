"""Progress is shown where somebody looks, while answers take their time; nothing else changes."""

import io
import sys
from collections.abc import Iterator

import pytest

from sim.config import progress
from sim.config.progress import counted, metered, part, polled, waited, whole


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def until(self, text: str) -> None:
        """Wait for it: ends only if it is shown."""
        while text not in self.getvalue():
            pass


def drawn_on(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal that is drawn on a thousand times a second. It is no fixture: between the setup
    of a test and its call pytest puts back what it captures with."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "_TICK", 1e-3)
    return terminal


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
        before = shown.getvalue().count("\r")
        while shown.getvalue().count("\r") < before + 3:
            pass  # ends only if the bar is drawn again meanwhile
        yield 1

    assert list(counted(slow(), total=2, unit="row")) == [0, 1]
    assert "1/2" in shown.getvalue()


def test_what_counts_takes_the_place_of_a_clock_and_hides_what_it_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = drawn_on(monkeypatch)

    @waited("the step")
    def step() -> None:
        shown.until("the step, 00:00 so far")
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
    assert not progress._under_way


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
    assert not progress._under_way


@pytest.mark.parametrize("by_itself", [True, False])
def test_what_is_being_done_is_told_in_words(
    by_itself: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = drawn_on(monkeypatch)
    with progress.told(lambda: "step 2: 345 operators", by_itself=by_itself) as look:
        while "step 2: 345 operators, 00:00 so far" not in shown.getvalue():
            if not by_itself:
                look()


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
