"""Ctrl-C that keeps results: a command answers with everything that it has found so far."""

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
    """The state of a command that Ctrl-C may have `stopped`. `finding` has an entry for each loop
    over `so_far`, the innermost last: whether it looks for its next answer. A Ctrl-C that is
    `pressed` while an answer is handled takes effect afterwards."""

    stopped: bool = False
    pressed: bool = False
    finding: list[bool] = field(default_factory=list)

    def press(self, number: int, frame: FrameType | None) -> None:
        """Handle Ctrl-C: interrupt now, or remember it while an answer is handled."""
        if self.finding and not self.finding[-1]:
            self.pressed = True
        else:
            signal.default_int_handler(number, frame)


_commands: list[Command] = []


@contextmanager
def kept() -> Iterator[Command]:
    """Within the block, Ctrl-C ends loops over `so_far`; elsewhere it ends the whole program."""
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
    """Yield the `answers`. In a command, Ctrl-C ends them early, once there are at least `least`
    answers; later loops of a stopped command yield none."""
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
