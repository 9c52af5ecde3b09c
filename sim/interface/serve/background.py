"""Questions that take longer: each in a process of its own, which can be stopped."""

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from sim.config import limit, reads
from sim.config.errors import InputError
from sim.config.progress import silence
from sim.config.stopping import kept
from sim.interface.serve.questions import PATIENCE, SLOW

_LONGEST = 10 * PATIENCE


class Background:
    """One process for each question: a new one takes the place of the one before."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["sim.interface.serve.questions"])
        self._running: dict[str, Any] = {}

    async def ask(self, name: str, document: Any, places: Iterable[Path]) -> dict[str, Any]:
        """The answer to a question of `SLOW`; that a newer one took its place, if so."""
        self.end(name)
        here, there = self._context.Pipe()
        process = self._context.Process(target=_work, args=(there, name, document, [*places]))
        process.start()
        there.close()
        self._running[name] = process
        loop = asyncio.get_running_loop()
        try:
            found: dict[str, Any] = await loop.run_in_executor(None, here.recv)
        except EOFError:
            found = {"fault": "ended before there was an answer", "ended": True}
        finally:
            here.close()
        if self._running.get(name) is process:
            del self._running[name]
        return found

    def stop(self, name: str) -> None:
        """End a question with what it has found by then."""
        self._signal(self._running.get(name), signal.SIGINT)

    def end(self, *names: str) -> None:
        """End questions, all if none is named, without an answer."""
        for name in names or [*self._running]:
            self._signal(self._running.pop(name, None), signal.SIGKILL)

    def _signal(self, process: Any, number: signal.Signals) -> None:
        if process is not None and process.is_alive():
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:  # it has no group of its own yet
                process.kill()


def _work(pipe: Any, name: str, document: Any, places: list[Path]) -> None:
    """A process and its own group, which signals reach as a whole."""
    os.setsid()
    silence()
    limit.allow(_LONGEST)
    try:
        with reads.only(places), kept():
            answer = SLOW[name](document)
    except InputError as error:
        answer = {"fault": str(error)}
    except KeyboardInterrupt:
        answer = {"fault": "stopped before anything was found"}
    with suppress(BrokenPipeError):
        pipe.send(answer)
