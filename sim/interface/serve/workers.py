"""Run processes that answer the page's questions; a process answers a question at a time.

A process is a fresh interpreter, which reads questions and writes answers as lines of JSON. So it
does not run the notebook or script that started the page again. If all processes are busy, a
waiting question starts another process. A question whose page is gone ends with its process.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from sim.interface.serve.states import Base

COMMAND = (sys.executable, "-m", "sim.interface.serve.worker")
_SPARE = 2  # processes that wait for a question
_LARGEST = 1 << 28  # bytes of an answer
_ENDED = b'{"fault": "no answer was found; the terminal of the server says why"}'

Process = asyncio.subprocess.Process


class Workers:
    """The processes for a base. A question waits `patience` (s) for a busy process before it starts
    another process."""

    def __init__(self, base: Base, command: Sequence[str] = COMMAND, patience: float = 1.0) -> None:
        self._base, self._command, self._patience = base, command, patience
        self._idle: asyncio.LifoQueue[Process] = asyncio.LifoQueue()
        self._starting: asyncio.Task[None] | None = None
        self._all: set[Process] = set()
        self._asked: dict[str, Process] = {}
        self._stopped: set[Process] = set()
        self._closed = False

    def start(self) -> None:
        """Start another process, unless a process is starting already."""
        if self._starting is None or self._starting.done():
            self._starting = asyncio.get_running_loop().create_task(self._start())

    async def _start(self) -> None:
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=_LARGEST,
            start_new_session=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        self._all.add(process)
        if self._closed:
            self._end(process)
        await _told(process, asdict(self._base))
        self._idle.put_nowait(process)

    async def ask(self, name: str, asked: Any, ticket: str = "") -> bytes:
        """Return the answer to a question as JSON. `stop` with the question's ticket ends it early.
        If this call is cancelled, the question's process ends."""
        process = await self._free()
        if ticket:
            self._asked[ticket] = process
        answered = b""
        try:
            answered = await _told(process, [name, asked])
        finally:
            self._asked.pop(ticket, None)
            if answered and process not in self._stopped and self._idle.qsize() < _SPARE:
                self._idle.put_nowait(process)
            else:
                self._end(process)
        return answered or _ENDED

    async def _free(self) -> Process:
        while True:
            with suppress(TimeoutError):
                return await asyncio.wait_for(self._idle.get(), self._patience)
            self.start()

    def stop(self, ticket: str) -> None:
        """Stop a question; it answers with its results so far."""
        if process := self._asked.get(ticket):
            self._stopped.add(process)
            _signal(process, signal.SIGINT)

    async def end(self) -> None:
        """End all questions without an answer, and a process that is starting."""
        self._closed = True
        for process in [*self._all]:
            self._end(process)
        if self._starting is not None:  # a start that fails has nothing to end
            await asyncio.gather(self._starting, return_exceptions=True)

    def _end(self, process: Process) -> None:
        self._all.discard(process)
        self._stopped.discard(process)
        _signal(process, signal.SIGKILL)


async def _told(process: Process, told: Any) -> bytes:
    """Send a line to a process and return its reply, which is empty if the process ends first."""
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(ConnectionError):
        process.stdin.write(f"{json.dumps(told)}\n".encode())
        await process.stdin.drain()
    return await process.stdout.readline()


def _signal(process: Process, number: signal.Signals) -> None:
    """Send a signal to a process and the processes that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
