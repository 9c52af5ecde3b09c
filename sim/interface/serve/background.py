"""Questions that take longer: each in a process of its own, which can be stopped.

The process is a fresh interpreter that reads its question and writes its answer as JSON, so that
nothing of a notebook or script around the page runs again in it.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

_WORKER = "sim.interface.serve.worker"


class Background:
    """One process for each question: a new one takes the place of the one before."""

    def __init__(self) -> None:
        self._running: dict[str, asyncio.subprocess.Process] = {}

    async def ask(
        self, name: str, document: Any, own: Sequence[str], places: Iterable[Path]
    ) -> dict[str, Any]:
        """The answer to a question of `SLOW` with settings of its `own`; that a newer one took its
        place, if so."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", _WORKER, name,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            start_new_session=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        self.end(name)  # only now: another may have begun while this process was made
        self._running[name] = process
        asked = json.dumps({"document": document, "own": own, "places": [*map(str, places)]})
        written, _ = await process.communicate(asked.encode())
        newest = self._running.get(name) is process
        if newest:
            del self._running[name]
        if not written:
            return {"fault": "stopped before anything was found", "ended": not newest}
        found: dict[str, Any] = json.loads(written)
        return found

    def stop(self, name: str) -> None:
        """End a question with what it has found by then."""
        if name in self._running:
            _signal(self._running[name], signal.SIGINT)

    def end(self, *names: str) -> None:
        """End questions, all if none is named, without an answer."""
        for name in names or [*self._running]:
            if name in self._running:
                _signal(self._running.pop(name), signal.SIGKILL)


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """To a process and those that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
