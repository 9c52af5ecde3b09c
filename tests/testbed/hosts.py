"""The hosts: one forked process each, in its own network namespace, a rank of one gloo group.

Namespaces have no names and live as long as the processes in them, and the processes no longer
than the tests, so nothing is ever left behind.
"""

import multiprocessing
import os
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.testbed import kernel, wiring

_fork = multiprocessing.get_context("fork")
TIMEOUT = 90.0  # seconds that any single command may take


@dataclass
class Host:
    """A rank's process, as patterns use it."""

    rank: int
    size: int
    barrier: Any
    instant: Any
    cache: dict[str, Any] = field(default_factory=dict)

    def common_start(self) -> float:
        """Sleep until an instant (s, monotonic) that all ranks share."""
        self.barrier.wait(TIMEOUT)
        if self.rank == 0:
            self.instant.value = time.monotonic() + 0.005
        self.barrier.wait(TIMEOUT)
        start = float(self.instant.value)
        time.sleep(max(start - time.monotonic(), 0.0))
        return start


Timed = Callable[[], Any]
Pattern = Callable[..., Timed]  # (host, **arguments): prepares, and returns what is timed


@dataclass(frozen=True)
class Measured:
    """Seconds of each repetition (latest end minus common start), and what the ranks returned."""

    seconds: tuple[float, ...]
    values: tuple[tuple[Any, ...], ...]  # by repetition and rank

    @property
    def fastest(self) -> float:
        """Seconds of the repetition that other work on the machine delayed least."""
        return min(self.seconds)

    def of_rank(self, rank: int) -> list[Any]:
        """What a rank returned in each repetition."""
        return [values[rank] for values in self.values]


class Hosts:
    """`size` hosts behind two switches; use it as a context manager."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._folder = tempfile.TemporaryDirectory(prefix="testbed-")
        self._processes: list[Any] = []
        self._pipes: list[Connection] = []
        self._shared = (_fork.Barrier(size), _fork.Value("d", 0.0, lock=False))

    def __enter__(self) -> "Hosts":
        try:
            self._build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join(10)
        for pipe in self._pipes:
            pipe.close()
        self._folder.cleanup()

    def _build(self) -> None:
        import_module("tests.testbed.patterns")  # torch, once for all
        rendezvous = str(Path(self._folder.name, "rendezvous"))
        for host in range(self.size):
            self._start(_serve_host, Host(host, self.size, *self._shared), rendezvous)
        self._start(_serve_switch)
        self._answers()
        self._request(self.size, "wire", [process.pid for process in self._processes[:-1]])
        self._request_all(range(self.size), "join")
        for host in range(self.size):
            self.set_rate(host, wiring.RATE)
        self.measure("all_reduce", repeat=1, size=4096)

    def _start(self, serve: Callable[..., None], *arguments: Any) -> None:
        ours, theirs = _fork.Pipe()
        process = _fork.Process(target=serve, args=(theirs, *arguments), daemon=True)
        process.start()
        theirs.close()
        self._processes.append(process)
        self._pipes.append(ours)

    def set_rate(self, host: int, rate: float) -> None:
        """Shape a host's link, both ways, to `rate` B/s."""
        self._request(host, "shape", rate)
        self._request(self.size, "shape", host, self.size, rate)

    def set_trunk(self, rate: float) -> None:
        """Shape the trunk between the two halves of the hosts, both ways; 0: not at all."""
        self._request(self.size, "shape_trunk", self.size, rate)

    def measure(
        self, pattern: str, *, repeat: int = 5, warm: int = 1, **arguments: Any
    ) -> Measured:
        """Run a pattern of `tests.testbed.patterns` on all hosts `warm` + `repeat` times."""
        answers = self._request_all(range(self.size), "play", pattern, warm + repeat, arguments)
        runs = list(zip(*answers, strict=True))[warm:]
        return Measured(
            tuple(max(seconds for seconds, _ in run) for run in runs),
            tuple(tuple(value for _, value in run) for run in runs),
        )

    def _request(self, index: int, *command: Any) -> Any:
        return self._request_all([index], *command)[0]

    def _request_all(self, indices: Sequence[int] | range, *command: Any) -> list[Any]:
        for index in indices:
            try:
                self._pipes[index].send(command)
            except ConnectionError:
                raise RuntimeError(f"host {index} has died") from None
        return self._answers(indices)

    def _answers(self, indices: Sequence[int] | range | None = None) -> list[Any]:
        """One answer of each. Raises the first failure."""
        indices = range(len(self._pipes)) if indices is None else indices
        waiting = {self._pipes[index]: index for index in indices}
        answers: dict[int, Any] = {}
        deadline = time.monotonic() + TIMEOUT
        while waiting:
            ready = multiprocessing.connection.wait(
                list(waiting), max(deadline - time.monotonic(), 0.0)
            )
            if not ready:
                raise TimeoutError(f"hosts {sorted(waiting.values())} did not answer")
            for pipe in ready:
                index = waiting.pop(pipe)
                try:
                    failed, answers[index] = pipe.recv()
                except (EOFError, ConnectionError):
                    raise RuntimeError(f"host {index} has died") from None
                if failed:
                    raise RuntimeError(f"host {index}:\n{answers[index]}")
        return [answers[index] for index in indices]


def _serve(pipe: Connection, commands: dict[str, Callable[..., Any]]) -> None:
    """Answer commands until the tests end."""
    pipe.send((False, os.getpid()))
    while True:
        try:
            name, *arguments = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((False, commands[name](*arguments)))
        except Exception:
            pipe.send((True, traceback.format_exc()))


def _enter_namespace() -> None:
    kernel.die_with_parent()
    kernel.enter_new_network()
    wiring.set_sysctls()


def _serve_switch(pipe: Connection) -> None:
    def wire(processes: list[int]) -> None:
        wiring.batch("ip", wiring.bridges(processes))
        for device in ("t0", "t1", *(f"p{host}" for host in range(len(processes)))):
            kernel.switch_offloads_off(device)

    def shape(host: int, hosts: int, rate: float) -> None:
        _shape(f"p{host}", rate, _peers(host, hosts), "src")

    def shape_trunk(hosts: int, rate: float) -> None:
        for pod, members in enumerate(wiring.pods(hosts)):
            _shape(f"t{pod}", rate, members, "src")

    _enter_namespace()
    _serve(pipe, {"wire": wire, "shape": shape, "shape_trunk": shape_trunk})


_shaped: set[str] = set()  # devices of this process's namespace


def _peers(host: int, hosts: int) -> list[int]:
    return [peer for peer in range(hosts) if peer != host]


def _shape(device: str, rate: float, peers: Iterable[int], by: str) -> None:
    """Let a device send `rate` B/s, evenly for the flows of these peers; 0: as fast as it can."""
    if device in _shaped:
        wiring.batch("tc", wiring.unshaped(device))
        _shaped.remove(device)
    if rate:
        wiring.batch("tc", wiring.shaper(device, rate, peers, by))
        _shaped.add(device)


def _serve_host(pipe: Connection, host: Host, rendezvous: str) -> None:
    from tests.testbed import patterns

    def join() -> None:
        wiring.batch("ip", wiring.interface(host.rank, host.size))
        kernel.switch_offloads_off("eth0")
        patterns.join(host, rendezvous, timedelta(seconds=TIMEOUT))

    def shape(rate: float) -> None:
        _shape("eth0", rate, _peers(host.rank, host.size), "dst")

    def play(name: str, times: int, arguments: dict[str, Any]) -> list[tuple[float, Any]]:
        return _timed(host, getattr(patterns, name)(host, **arguments), times)

    _enter_namespace()
    kernel.sleep_precisely()
    kernel.run_first()
    _serve(pipe, {"join": join, "shape": shape, "play": play})


def _timed(host: Host, timed: Timed, times: int) -> list[tuple[float, Any]]:
    """For each repetition, seconds from the common start to this rank's end, and its value."""
    repetitions = []
    for _ in range(times):
        start = host.common_start()
        value = timed()
        repetitions.append((time.monotonic() - start, value))
    return repetitions
