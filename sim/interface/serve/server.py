"""The local server of the page, on Tornado, which Bokeh brings along.

It listens on this machine alone. Every address begins with a random token; a request with another
Host or Origin is refused, so that no page of another server can ask. Files are read as `Bases`
allows. Answers come from one thread, longer questions run in processes (`background`).
"""

import asyncio
import gc
import hmac
import json
import secrets
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from typing import Any

from bokeh.resources import Resources
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, HTTPError, RequestHandler

from sim.config import reads
from sim.config.errors import InputError
from sim.interface.serve.background import Background
from sim.interface.serve.questions import FORMS, SLOW, Data, Questions, without_garbage
from sim.interface.serve.states import Base, Bases, model_of
from sim.results.answer import finite

HOST = "127.0.0.1"
_LARGEST = 2 << 20  # bytes of a request
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
    """The page of one base at `address`; `start` and `close` belong to the loop that runs it.
    Raises `InputError` for a base that cannot be set up, or a port that is taken."""

    def __init__(self, base: Base, port: int = 0) -> None:
        self.bases = Bases(base)
        self.token = secrets.token_urlsafe(24)
        self.questions, self.background = Questions(), Background()
        self.thread = ThreadPoolExecutor(1, "answers")
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
        """Listen. The first answer is asked beforehand, so that none waits for imports."""
        given = {"server": self}
        routes = [
            (r"/([^/]*)/", _Page, given),
            (r"/([^/]*)/([a-z]+\.(?:js|css))", _Part, given),
            (r"/([^/]*)/(start|answer|charts|compare|model)", _Quick, given),
            (r"/([^/]*)/slow/([a-z]+)", _Slow, given),
            (r"/([^/]*)/stop/([a-z]+)", _Stop, given),
            (r"/([^/]*)/export/([a-z-]+)", _Export, given),
        ]
        application = Application(
            routes,
            default_handler_class=_Nothing,
            default_handler_args=given,
            log_function=lambda handler: None,
        )
        self._server = HTTPServer(application, max_body_size=_LARGEST)
        self._server.add_sockets(self._sockets)
        self.thread.submit(self.asked, self._warm)

    def _warm(self) -> Data:
        state = self.bases.state({})
        self.questions.answer(state)
        found = self.questions.charts(state)
        gc.freeze()  # what is loaded by now is never looked through again
        return found

    def close(self) -> None:
        """Answer nothing any more."""
        self.background.end()
        if self._server is not None:
            self._server.stop()
        self.thread.shutdown(wait=False, cancel_futures=True)

    def asked(self, question: Callable[[], Data]) -> Data:
        """The answer to a question, or its fault, with no file read but those allowed."""
        try:
            with reads.only(self.bases.places), without_garbage():
                return question()
        except InputError as error:
            return {"fault": str(error)}


class _Asked(RequestHandler):
    """A request with the token, from the page itself."""

    def initialize(self, server: Server) -> None:
        self.server = server

    def prepare(self) -> None:
        own = {f"{host}:{self.server.port}" for host in (HOST, "localhost")}
        token = self.request.path.removeprefix("/").partition("/")[0]
        if self.request.host not in own:
            raise HTTPError(403, reason="another host")
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            raise HTTPError(403, reason="no token")
        origin = self.request.headers.get("Origin")
        if origin is not None and origin not in {f"http://{host}" for host in own}:
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
        """What is asked."""
        try:
            found = json.loads(self.request.body)
        except (ValueError, RecursionError):
            raise HTTPError(400, reason="no JSON") from None
        if not isinstance(found, dict):
            raise HTTPError(400, reason="no object")
        return found

    async def quick(self, question: Callable[[], Data]) -> Data:
        """A question to the thread that answers."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.server.thread, self.server.asked, question)

    def answer(self, found: Any) -> None:
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(finite(found)))


class _Nothing(_Asked):
    def prepare(self) -> None:
        super().prepare()
        raise HTTPError(404)


class _Page(_Asked):
    def get(self, token: str) -> None:
        self.finish(_packaged("serve", "serve.html")())


class _Part(_Asked):
    """A script or a sheet of style of ours, or Bokeh's library."""

    def get(self, token: str, name: str) -> None:
        parts = {
            "bokeh.js": lambda: "\n".join(Resources(mode="inline", components=["bokeh"]).js_raw),
            **{one: _packaged("page", one) for one in ("charts.js", "page.css")},
            **{one: _packaged("serve", one) for one in ("serve.js", "serve.css")},
        }
        if name not in parts:
            raise HTTPError(404)
        self.set_header("Content-Type", _TYPES[name[name.rindex(".") :]])
        self.set_header("Cache-Control", "private, max-age=3600")
        self.finish(parts[name]())


def _packaged(folder: str, name: str) -> Callable[[], str]:
    return lambda: files(f"sim.interface.{folder}").joinpath(name).read_text("utf-8")


class _Quick(_Asked):
    async def post(self, token: str, name: str) -> None:
        asked, bases, questions = self.json(), self.server.bases, self.server.questions
        ask: dict[str, Callable[[], Data]] = {
            "start": lambda: {"names": bases.names, "forms": FORMS},
            "answer": lambda: questions.answer(bases.state(asked), str(asked.get("last", ""))),
            "charts": lambda: questions.charts(bases.state(asked)),
            "compare": lambda: questions.compared(bases.states(asked)),
            "model": lambda: {"setting": model_of(str(asked.get("text", "")))},
        }
        self.answer(await self.quick(ask[name]))


class _Slow(_Asked):
    async def post(self, token: str, name: str) -> None:
        if name not in SLOW:
            raise HTTPError(404)
        asked, server = self.json(), self.server
        found = await self.quick(lambda: {"document": server.bases.state(asked).document})
        if "document" in found:
            given = asked.get("own")
            own = (
                [f"{key}={text}" for key, text in given.items()] if isinstance(given, dict) else []
            )
            document, places = found["document"], server.bases.places
            found = await server.background.ask(name, document, own, places)
        self.answer(found)


class _Stop(_Asked):
    def post(self, token: str, name: str) -> None:
        self.server.background.stop(name)
        self.answer({})


class _Export(_Asked):
    async def post(self, token: str, form: str) -> None:
        if form not in FORMS:
            raise HTTPError(404)
        asked, server = self.json(), self.server

        def file() -> Data:
            with reads.recorded():
                return server.questions.exported(server.bases.state(asked), form)

        self.answer(await self.quick(file))


async def serve(server: Server) -> None:
    """Answer until it is cancelled."""
    server.start()
    try:
        await asyncio.Event().wait()
    finally:
        server.close()
