"""Trials are tried one after the other in a child of this process, which may die of them.

A trial is a case, a law of a job, a flip or a kill: `kind`, what `violation` says against it (empty
where it holds, None where it says nothing) and `to_dict`, from which `of` of its class makes it
again. One interpreter tries a slice of them, so that nothing is imported twice; each has so many
seconds of CPU time. A trial whose child dies or sleeps is a violation like any other, and another
child goes on.
"""

import json
import os
import resource
import select
import signal
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from tests.campaign.case import own_folder

PATIENCE = 30  # s of CPU time, not of a busy machine's clock; hardly any trial takes one
ASLEEP = 10 * PATIENCE  # s on the clock; what waits for ever uses no CPU
MEMORY = 6 << 30  # bytes of address space


class Trial(Protocol):
    """See above."""

    @property
    def kind(self) -> str: ...

    def violation(self) -> str | None: ...

    def to_dict(self) -> dict[str, Any]: ...


Slice = Callable[[Callable[[Trial], None]], None]
"""Hands trials, one after the other, to the function that it is given."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a trial."""

    trial: dict[str, Any]  # its kind among the keys
    violation: str | None

    @property
    def counted_as(self) -> str:
        return f"{self.trial['kind']} refused" if self.violation is None else self.trial["kind"]


def tried(slice_: Slice) -> Iterator[Verdict]:
    """The verdicts on a slice of trials; the slice ends with the child that tries it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _try(slice_, writing)
    os.close(writing)
    begun: dict[str, Any] | None = None
    try:
        for message in map(json.loads, _awake(reading)):
            if "begin" in message:
                begun = message["begin"]
            elif begun is not None:
                yield Verdict(begun, message["end"])
                begun = None
    finally:
        os.close(reading)
        if _lives(child):
            os.kill(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if begun is not None:
        yield Verdict(begun, _how_it_ended(code))


def _awake(reading: int) -> Iterator[bytes]:
    """Lines as they come, until the child has ended or none comes for long."""
    rest = b""
    while select.select([reading], [], [], ASLEEP)[0] and (read := os.read(reading, 1 << 16)):
        *lines, rest = (rest + read).split(b"\n")
        yield from lines


def _lives(child: int) -> bool:
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def _how_it_ended(code: int) -> str:
    if code == -signal.SIGXCPU:
        return f"takes more than {PATIENCE} s of CPU time"
    return "sleeps or was killed" if code == -signal.SIGKILL else f"ends the process: {code}"


def _try(slice_: Slice, writing: int) -> None:
    """In the child; never returns."""
    code = 1
    try:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        with os.fdopen(writing, "w", encoding="utf-8", buffering=1) as lines:
            slice_(lambda trial: _told(trial, lines))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _told(trial: Trial, lines: IO[str]) -> None:
    """Try one, and say so."""
    lines.write(json.dumps({"begin": named(trial)}) + "\n")
    used = resource.getrusage(resource.RUSAGE_SELF)
    most = int(used.ru_utime + used.ru_stime) + 1 + PATIENCE
    resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))
    lines.write(json.dumps({"end": verdict(trial)}) + "\n")


def named(trial: Trial) -> dict[str, Any]:
    """A trial as JSON has it, with what it is."""
    return {"kind": trial.kind, "class": type(trial).__name__, **trial.to_dict()}


def verdict(trial: Trial) -> str | None:
    """What is to be said against a trial, in a folder of its own."""
    with own_folder():
        try:
            return trial.violation()
        except Exception as error:  # of any kind: nothing may end a slice
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(where.filename).name}:{where.lineno}"
            return f"{type(error).__name__} ({place}): {error}"
