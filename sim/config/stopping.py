"""Ctrl-C that keeps what is there: a command answers with what it has found by then."""

import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import TypeVar

Answer = TypeVar("Answer")


@dataclass(slots=True, eq=False)
class Command:
    """Whether a command was `stopped`. Ctrl-C was `pressed`, but not heard yet, where an answer was
    being dealt with; `finding` tells of what is `so_far`, the innermost last, whether another
    answer is looked for."""

    stopped: bool = False
    pressed: bool = False
    finding: list[bool] = field(default_factory=list)

    def press(self, number: int, frame: FrameType | None) -> None:
        """Ctrl-C."""
        if self.finding and not self.finding[-1]:
            self.pressed = True
        else:
            signal.default_int_handler(number, frame)


_commands: list[Command] = []


@contextmanager
def kept() -> Iterator[Command]:
    """Within this Ctrl-C ends what is `so_far`; elsewhere, as in Python, it ends everything."""
    command = Command()
    heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    hears = heard and threading.current_thread() is threading.main_thread()
    if hears:
        signal.signal(signal.SIGINT, command.press)
    _commands.append(command)
    try:
        yield command
    finally:
        _commands.remove(command)
        if hears:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def so_far(answers: Iterable[Answer], *, least: int = 1) -> Iterator[Answer]:
    """The same answers. In a command Ctrl-C ends them early, once there are at least so many; what
    comes after that has none."""
    if not _commands:
        yield from answers
    elif not _commands[-1].stopped:
        yield from _of_command(_commands[-1], iter(answers), least)


def _of_command(command: Command, answers: Iterator[Answer], least: int) -> Iterator[Answer]:
    finding, place, count = command.finding, len(command.finding), 0
    finding.append(True)
    try:
        while True:
            finding[place] = True
            if command.pressed and count >= least:
                break
            try:
                answer = next(answers)
            except StopIteration:
                break
            finding[place] = False
            count += 1
            yield answer
    except KeyboardInterrupt:
        if count < least:
            raise
        command.stopped = True
    finally:
        del finding[place:]
        command.stopped = command.stopped or command.pressed
