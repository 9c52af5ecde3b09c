"""The local server of the page, on Tornado, which Bokeh brings along.

The server listens on this machine alone. Every address begins with a random token. Requests with
another Host or Origin are refused, so pages of other servers cannot ask. Only files that `Bases`
allows are read. Processes answer the questions (`workers`), until the page closes the connection.
"""

import asyncio
import hmac
import json
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.resources import files
from typing import Any

from bokeh.resources import Resources
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, HTTPError, RequestHandler

from sim.config.errors import InputError
from sim.interface.serve.questions import FORMS, QUICK, SLOW
from sim.interface.serve.states import Base, Bases
from sim.interface.serve.workers import Workers

HOST = "127.0.0.1"
_LARGEST = 2 << 20  # bytes of a request
_GRACE = 2.0  # s after which a question is cancelled if its page has closed the connection
_POLICY = (  # Bokeh compiles its hover texts
    "default-src 'none'; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors http://127.0.0.1:* http://localhost:*"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_TYPES = {".js": "text/javascript", ".css": "text/css"}


class Server:
    """The server of the page that begins with `base`, at `address`. Call `start` and `close` in the
    event loop that runs the server. Raises `InputError` for a base that cannot be set up, or a port
    that is taken."""

    def __init__(self, base: Base, port: int = 0) -> None:
        self.base, self.names = base, Bases(base).names
        self.token = secrets.token_urlsafe(24)
        self.workers, self.grace = Workers(base), _GRACE
        try:
            self._sockets = bind_sockets(port, HOST)
        except OSError as error:
            fault = f"{port} cannot be listened to ({error.strerror})"
            raise InputError("--port", fault, "leave it out for a free one") from None
        self.port = self._sockets[0].getsockname()[1]
        self._server: HTTPServer | None = None

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}/{self.token}/"

    def start(self) -> None:
        """Listen."""
        given = {"server": self}
        routes = [
            (r"/([^/]*)/", _Page, given),
            (r"/([^/]*)/([a-z]+\.(?:js|css))", _Part, given),
            (r"/([^/]*)/start", _Start, given),
            (r"/([^/]*)/stop", _Stop, given),
            (r"/([^/]*)/export/([a-z-]+)", _Export, given),
            (r"/([^/]*)/([a-z]+)", _Question, given),
        ]
        application = Application(
            routes,
            default_handler_class=_Nothing,
            default_handler_args=given,
            log_function=lambda handler: None,
        )
        self._server = HTTPServer(application, max_body_size=_LARGEST)
        self._server.add_sockets(self._sockets)
        self.workers.start()

    async def close(self) -> None:
        """End the server and the processes that answer questions."""
        if self._server is not None:
            self._server.stop()
        await self.workers.end()


class _Asked(RequestHandler):
    """A request with the token, from the page itself."""

    def initialize(self, server: Server) -> None:
        self.server = server
        self.task: asyncio.Task[bytes] | None = None

    def prepare(self) -> None:
        hosts = {f"{host}:{self.server.port}" for host in (HOST, "localhost")}
        token = self.request.path.removeprefix("/").partition("/")[0]
        if self.request.host not in hosts:
            raise HTTPError(403, reason="another host")
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            raise HTTPError(403, reason="no token")
        origin = self.request.headers.get("Origin")
        if origin is not None and origin not in {f"http://{host}" for host in hosts}:
            raise HTTPError(403, reason="another origin")
        kind = self.request.headers.get("Content-Type", "")
        if self.request.method == "POST" and not kind.startswith("application/json"):
            raise HTTPError(415, reason="no JSON")

    def set_default_headers(self) -> None:
        for name, value in _HEADERS.items():
            self.set_header(name, value)
        self.clear_header("Server")

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps({"fault": f"{status_code}: {self._reason}"}))

    def json(self) -> Mapping[str, Any]:
        """Return the JSON object in the request."""
        try:
            found = json.loads(self.request.body)
        except (ValueError, RecursionError):
            raise HTTPError(400, reason="no JSON") from None
        if not isinstance(found, dict):
            raise HTTPError(400, reason="no object")
        return found

    async def answer(self, name: str, asked: Mapping[str, Any]) -> None:
        """Answer a question, unless the page closes the connection first."""
        ticket = str(asked.get("ticket", ""))
        self.task = asyncio.create_task(self.server.workers.ask(name, asked, ticket))
        with suppress(asyncio.CancelledError):
            self.told(await self.task)

    def told(self, found: bytes | str) -> None:
        self.set_header("Content-Type", "application/json")
        self.finish(found)

    def on_connection_close(self) -> None:
        if self.task is not None:
            asyncio.get_running_loop().call_later(self.server.grace, self.task.cancel)


class _Nothing(_Asked):
    def prepare(self) -> None:
        super().prepare()
        raise HTTPError(404)


class _Page(_Asked):
    def get(self, token: str) -> None:
        self.finish(_packaged("serve", "serve.html")())


class _Part(_Asked):
    """Our scripts and style sheets, and Bokeh's library."""

    def get(self, token: str, name: str) -> None:
        parts = {
            "bokeh.js": lambda: "\n".join(Resources(mode="inline", components=["bokeh"]).js_raw),
            **{file: _packaged("page", file) for file in ("charts.js", "page.css")},
            **{file: _packaged("serve", file) for file in ("serve.js", "serve.css")},
        }
        if name not in parts:
            raise HTTPError(404)
        self.set_header("Content-Type", _TYPES[name[name.rindex(".") :]])
        self.set_header("Cache-Control", "private, max-age=3600")
        self.finish(parts[name]())


def _packaged(folder: str, name: str) -> Callable[[], str]:
    return lambda: files(f"sim.interface.{folder}").joinpath(name).read_text("utf-8")


class _Start(_Asked):
    def post(self, token: str) -> None:
        self.told(json.dumps({"names": self.server.names, "forms": FORMS}))


class _Question(_Asked):
    async def post(self, token: str, name: str) -> None:
        if name not in QUICK and name not in SLOW:
            raise HTTPError(404)
        await self.answer(name, self.json())


class _Stop(_Asked):
    def post(self, token: str) -> None:
        self.server.workers.stop(str(self.json().get("ticket", "")))
        self.told("{}")


class _Export(_Asked):
    async def post(self, token: str, form: str) -> None:
        if form not in FORMS:
            raise HTTPError(404)
        await self.answer("export", {**self.json(), "form": form})


async def serve(server: Server) -> None:
    """Run the server until the task is cancelled."""
    server.start()
    try:
        await asyncio.Event().wait()
    finally:
        await server.close()
