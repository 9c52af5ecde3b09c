"""`sim.explore` shows the page of `sim serve` within a notebook."""

import asyncio
import os
import threading
from html import escape

from sim.interface.serve.server import Server
from sim.interface.serve.states import base_of
from sim.scenario.settings import Settings, settings_of


class Explorer:
    """The page of a scenario at `address`, which a notebook shows in a frame. The page's server
    runs in a thread of this process until `close`."""

    def __init__(self, server: Server, height: int) -> None:
        self._server, self._height = server, height
        self._loop = asyncio.new_event_loop()
        self._ended = False
        ready = threading.Event()
        self._loop.call_soon(server.start)
        self._loop.call_soon(ready.set)
        threading.Thread(target=self._loop.run_forever, name="sim.explore", daemon=True).start()
        ready.wait()

    @property
    def address(self) -> str:
        return self._server.address

    def close(self) -> None:
        """End the server."""
        if not self._ended:
            self._ended = True
            try:
                asyncio.run_coroutine_threadsafe(self._server.close(), self._loop).result()
            finally:
                self._loop.call_soon_threadsafe(self._loop.stop)

    def __repr__(self) -> str:
        return f"<Explorer: {self.address}>"

    def _repr_html_(self) -> str:
        address = escape(self.address)
        return (
            f'<iframe src="{address}" title="sim" width="100%" height="{self._height}" '
            'style="border:0"></iframe>'
            f'<small>If the frame is empty, open <a href="{address}" target="_blank">the page</a> '
            "on the machine where this notebook's kernel runs. <code>sim.sliders</code> works on "
            "any machine.</small>"
        )


def explore(
    scenario: str | os.PathLike[str], settings: Settings = (), *, height: int = 820
) -> Explorer:
    """Show the page of `sim serve` in a frame of a notebook, `height` pixels high. `scenario` is a
    name or a file. Raises `InputError`.

    >>> page = explore("gpt2-one-gpu")
    >>> page.address.startswith("http://127.0.0.1:")
    True
    >>> page.close()
    """
    return Explorer(Server(base_of(os.fspath(scenario), settings_of(settings))), height)
