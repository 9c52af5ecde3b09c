"""Ctrl-C ends a command with what it has found, and everything elsewhere."""

import fcntl
import os
import pty
import re
import signal
import struct
import sys
import termios
from collections.abc import Iterator

import pytest

from sim.config.stopping import kept, so_far


@pytest.fixture(autouse=True)
def heard() -> Iterator[None]:
    """Ctrl-C as at a terminal, also where the tests run in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def pressed_after(count: int) -> Iterator[int]:
    """Answers, the next of which Ctrl-C interrupts."""
    yield from range(count)
    signal.raise_signal(signal.SIGINT)
    raise AssertionError("not interrupted")


def test_a_command_keeps_what_it_has_found() -> None:
    with kept() as command:
        assert list(so_far(pressed_after(3))) == [0, 1, 2]
        assert command.stopped
        assert list(so_far(range(3))) == [], "what comes after that is left out"


@pytest.mark.parametrize("count", [0, 1])
def test_a_command_that_has_found_too_little_ends(count: int) -> None:
    with kept() as command, pytest.raises(KeyboardInterrupt):
        list(so_far(pressed_after(count), least=2))
    assert not command.stopped


def test_in_python_everything_ends() -> None:
    with pytest.raises(KeyboardInterrupt):
        list(so_far(pressed_after(3)))


def test_an_answer_that_is_being_dealt_with_is_not_lost() -> None:
    done = []
    with kept() as command:
        for answer in so_far(range(10)):
            if answer == 3:
                signal.raise_signal(signal.SIGINT)
            done.append(answer)
        assert done == [0, 1, 2, 3]
        assert command.stopped
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_of_two_rows_of_answers_the_inner_one_is_stopped_first() -> None:
    with kept():
        inner = (list(so_far(pressed_after(2))) for _ in range(3))
        assert list(so_far(inner)) == [[0, 1], [], []]


def in_a_terminal(*words: str, until: str) -> tuple[int, str]:
    """A command's exit code and what it wrote to a terminal, on which Ctrl-C is pressed once this
    is read."""
    process, terminal = pty.fork()
    if process == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 200, 0, 0))
        os.execv(sys.executable, [sys.executable, "-m", "sim", *words])
    seen, pressed = "", False
    while True:
        try:
            more = os.read(terminal, 65536)
        except OSError:  # Linux says so where a terminal was closed
            break
        if not more:
            break
        seen += more.decode(errors="replace")
        if not pressed and re.search(until, seen):
            pressed = os.write(terminal, b"\x03") > 0
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), seen


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "until", "kept_rows"),
    [
        (("run", "ps-async", "--seeds", "600"), r" ([2-9]|\d\d+)/600 \[", "samples per second"),
        (("compare", "megatron-1.7b", *[f": plan.global_batch={n * 512}" for n in range(2, 600)]),
         r" ([2-9]|\d\d+)/599 \[", "plan.global_batch=1024"),
    ],
)  # fmt: skip
def test_a_terminal_shows_the_time_left_and_keeps_what_was_found(
    words: tuple[str, ...], until: str, kept_rows: str
) -> None:
    code, text = in_a_terminal(*words, until=until)
    assert code == 130
    assert re.search(r"\d\d:\d\d<\d\d:\d\d", text)
    assert kept_rows in text
    assert "stopped: these are the results so far" in text
    assert "Traceback" not in text
