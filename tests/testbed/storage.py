"""A storage server on one host, and how the others read and write it: plain TCP."""

import queue
import socket
import struct
import threading
import time

from tests.testbed import wiring
from tests.testbed.hosts import TIMEOUT, Host

_PORT = 7077
_ORDER = struct.Struct("!cQ")  # R or W, and how many bytes
_PIECE = bytes(1 << 20)


class Server:
    """Answers every connection in a thread of its own."""

    def __init__(self, host: Host) -> None:
        known = host.cache.get("storage")
        self._listening: socket.socket = known or socket.create_server(
            (wiring.address(host.rank), _PORT)
        )
        self._new = known is None
        host.cache["storage"] = self._listening

    def start(self) -> None:
        """Accept connections from now on, unless it does already."""
        if self._new:
            threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._listening.accept()
            threading.Thread(target=_answer, args=(connection,), daemon=True).start()


def _answer(connection: socket.socket) -> None:
    while order := connection.recv(_ORDER.size, socket.MSG_WAITALL):
        kind, size = _ORDER.unpack(order)
        if kind == b"R":
            _send(connection, size)
        else:
            _receive(connection, size)
            connection.sendall(b"!")


def _send(connection: socket.socket, size: int) -> None:
    for sent in range(0, size, len(_PIECE)):
        connection.sendall(memoryview(_PIECE)[: min(size - sent, len(_PIECE))])


def _receive(connection: socket.socket, size: int) -> None:
    room = bytearray(len(_PIECE))
    while size:
        got = connection.recv_into(room, min(size, len(room)))
        if not got:
            raise ConnectionError("the other end has closed")
        size -= got


class Connection:
    """Of a host to the storage: one connection for what it reads, one for what it writes."""

    def __init__(self, host: Host) -> None:
        self._reading, self._writing = (_connected(host.size - 1) for _ in range(2))
        self._writes: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._under_way = 0
        self._safe = threading.Condition()
        threading.Thread(target=self._write_all, daemon=True).start()

    def loader(self, size: int) -> "Loader":
        """A loader of `size` bytes for each step."""
        return Loader(self._reading, size)

    def write(self, size: int) -> None:
        """Write so many bytes behind those that are being written."""
        with self._safe:
            self._under_way += 1
        self._writes.put(size)

    def written(self) -> None:
        """Wait until everything is written."""
        with self._safe:
            self._safe.wait_for(lambda: not self._under_way, TIMEOUT)

    def _write_all(self) -> None:
        while True:
            size = self._writes.get()
            self._writing.sendall(_ORDER.pack(b"W", size))
            _send(self._writing, size)
            self._writing.recv(1)
            with self._safe:
                self._under_way -= 1
                self._safe.notify_all()


class Loader:
    """Reads the next step's samples while this step runs."""

    def __init__(self, connection: socket.socket, size: int) -> None:
        self._connection, self._size = connection, size
        self._ready: queue.Queue[None] = queue.Queue()
        self._wanted: queue.Queue[bool] = queue.Queue()
        self._wanted.put(True)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def next(self) -> None:
        """Wait for a step's samples; those of the step after it are read from now on."""
        self._ready.get(timeout=TIMEOUT)
        self._wanted.put(True)

    def end(self) -> None:
        """Read what is on its way, and no more."""
        self._wanted.put(False)
        self._thread.join(TIMEOUT)

    def _read(self) -> None:
        while self._wanted.get():
            self._connection.sendall(_ORDER.pack(b"R", self._size))
            _receive(self._connection, self._size)
            self._ready.put(None)


def _connected(server: int) -> socket.socket:
    deadline = time.monotonic() + TIMEOUT
    while True:
        try:
            return socket.create_connection((wiring.address(server), _PORT), TIMEOUT)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
