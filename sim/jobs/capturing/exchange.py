"""How do captured ranks send one another messages? Each rank is captured in its own process.

Sent tensors have shapes and no content. But pipelines first agree on shapes by sending objects and
small integers. These really travel, through the process that has started all ranks. A rank is
started when another rank first sends to it or receives from it.
"""

import os
import sys
from collections import defaultdict, deque
from collections.abc import Callable
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any

from sim.config import counting
from sim.config.errors import InputError
from sim.jobs.capturing.patches import Patches
from sim.jobs.recorded.recording import Recording

_MOST = 64  # the most processes; pipelines have fewer stages


class Exchange:
    """Sends and receives the messages of a rank. Without a `hub` the rank is captured alone."""

    def __init__(self, hub: Connection | None = None) -> None:
        self.hub = hub
        self._met: set[int] = set()

    def meet(self, peer: int) -> None:
        """Note that this rank exchanges messages with a peer."""
        if self.hub and peer not in self._met:
            self._met.add(peer)
            self.hub.send(("meet", peer, None))

    def send(self, to: int, thing: Any) -> None:
        """Send an object, which is pickled."""
        if self.hub:
            self.hub.send(("send", to, thing))

    def receive(self, source: int) -> Any:
        """The next message from a rank. Raises `InputError` if this rank is captured alone."""
        if self.hub is None:
            fault = f"waits for a message of rank {source}, which is not captured"
            raise InputError("sim capture", fault, "capture pipelines with --stages")
        self.hub.send(("receive", source, None))
        return self.hub.recv()


Capture = Callable[[int, Exchange], Recording]


def captured_together(capture: Capture, first: int) -> dict[int, Recording]:
    """The recordings, by rank, of a rank and of all ranks with which it exchanges messages,
    directly or through other ranks. Raises the `InputError` of the first rank that fails."""
    ranks = _Ranks(capture)
    try:
        return ranks.all_from(first)
    finally:
        ranks.stop()


class _Ranks:
    """The processes of the ranks, and the messages that are not yet received."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.context: Any = get_context("fork")  # a notebook's function cannot be pickled and sent
        self.processes: dict[int, Any] = {}
        self.ends: dict[int, Connection] = {}
        self.boxes: defaultdict[tuple[int, int], deque[Any]] = defaultdict(deque)
        self.asking: dict[int, int] = {}
        self.found: dict[int, Recording] = {}

    def all_from(self, first: int) -> dict[int, Recording]:
        self.start(first)
        with counting.told(self.told, by_itself=False) as look:
            while self.ends:
                for end in wait(list(self.ends.values()), timeout=1.0):
                    rank = next(rank for rank, connection in self.ends.items() if connection is end)
                    self.hear(rank, end)  # type: ignore[arg-type]
                self.answer()
                look()
        return self.found

    def told(self) -> str:
        return f"recording {len(self.processes)} ranks, {len(self.found)} of them done"

    def start(self, rank: int) -> None:
        if rank in self.processes:
            return
        if len(self.processes) == _MOST:
            fault = f"more than {_MOST} ranks send one another messages"
            raise InputError("sim capture", fault, "capture fewer pipeline stages")
        here, other = self.context.Pipe()
        process = self.context.Process(target=_run, args=(self.capture, rank, other))
        process.start()
        other.close()
        self.processes[rank], self.ends[rank] = process, here

    def hear(self, rank: int, end: Connection) -> None:
        try:
            kind, peer, thing = end.recv()
        except (EOFError, ConnectionError):  # ConnectionError if the rank left messages unread
            fault = f"the process of rank {rank} died"
            raise InputError("sim capture", fault, "is there memory for all stages?") from None
        if kind == "done":
            del self.ends[rank]
            if isinstance(thing, InputError):
                raise thing
            self.found[rank] = thing
            return
        self.start(peer)
        if kind == "send":
            self.boxes[rank, peer].append(thing)
        elif kind == "receive":
            self.asking[rank] = peer

    def answer(self) -> None:
        """Hand over the messages that have come. Raises `InputError` if all ranks wait for
        messages."""
        for rank, source in list(self.asking.items()):
            if self.boxes[source, rank]:
                del self.asking[rank]
                self.ends[rank].send(self.boxes[source, rank].popleft())
        if self.ends and self.asking.keys() == self.ends.keys():
            rank, source = next(iter(self.asking.items()))
            fault = f"rank {rank} waits for a message that rank {source} never sends"
            raise InputError("sim capture", fault, "does every stage run the same schedule?")

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()  # a script may ignore SIGTERM
            process.join()


def _run(capture: Capture, rank: int, hub: Connection) -> None:
    """Capture a rank in its own process, and send the recording to the hub."""
    try:
        hub.send(("done", rank, capture(rank, Exchange(hub))))
    except InputError as error:
        hub.send(("done", rank, error))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # also ends threads that the script has left running


def install_messages(torch: Any, patches: Patches, exchange: Exchange) -> None:
    """Patch the exchange of objects. Objects from one rank to another really travel. In collectives
    of objects, all ranks are assumed to send this rank's object."""
    c10d = import_module("torch.distributed.distributed_c10d")

    # Scripts name these arguments, so they are called as torch calls them.
    def send(object_list: list[Any], dst: int, *_: Any, **__: Any) -> None:
        exchange.meet(dst)
        exchange.send(dst, list(object_list))

    def receive(object_list: list[Any], src: int, *_: Any, **__: Any) -> int:
        exchange.meet(src)
        object_list[:] = exchange.receive(src)
        return src

    def gather(object_list: list[Any], obj: Any, *_: Any, **__: Any) -> None:
        object_list[:] = [obj] * len(object_list)

    def collect(obj: Any, object_gather_list: list[Any] | None = None, *_: Any, **__: Any) -> None:
        gather(object_gather_list or [], obj)

    def scatter(
        scatter_object_output_list: list[Any],
        scatter_object_input_list: list[Any] | None = None,
        *_: Any,
        **__: Any,
    ) -> None:
        scatter_object_output_list[0] = (scatter_object_input_list or [None])[0]

    answers = {
        "send_object_list": send,
        "recv_object_list": receive,
        "all_gather_object": gather,
        "gather_object": collect,
        "broadcast_object_list": lambda *_, **__: None,
        "scatter_object_list": scatter,
    }
    for name, answer in answers.items():
        for module in (torch.distributed, c10d):
            patches.set(module, name, answer)
