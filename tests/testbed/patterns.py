"""What the hosts do with real software: torch.distributed on gloo, and DDP.

A pattern is called in every rank's process; it prepares and returns the part that is timed.
"""

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch._dynamo  # else each rank imports it, when DDP is first used
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule

from tests.testbed import kernel, storage
from tests.testbed.hosts import Host, Timed

FLOAT = 4  # bytes
Fails = tuple[int, float, float]  # which rank, when (s), and for how long (s)


def join(host: Host, rendezvous: str, timeout: timedelta) -> None:
    """Become a rank of the process group of all hosts."""
    os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{rendezvous}",
        rank=host.rank,
        world_size=host.size,
        timeout=timeout,
    )


def _floats(size: int) -> torch.Tensor:
    return torch.zeros(size // FLOAT)


def _pause(host: Host, pauses: Sequence[float]) -> None:
    if pauses:
        time.sleep(pauses[host.rank])


def all_reduce(host: Host, size: int, pauses: Sequence[float] = ()) -> Timed:
    """`size` bytes, after rank r has computed (slept) for pauses[r]."""
    data = _floats(size)

    def timed() -> None:
        _pause(host, pauses)
        dist.all_reduce(data)

    return timed


def all_gather(host: Host, size: int) -> Timed:
    """`size` bytes in all."""
    parts = [_floats(size // host.size) for _ in range(host.size)]
    return lambda: dist.all_gather(parts, parts[host.rank].clone())


def reduce_scatter(host: Host, size: int) -> Timed:
    """`size` bytes before it."""
    parts = [_floats(size // host.size) for _ in range(host.size)]
    return lambda: dist.reduce_scatter(torch.empty_like(parts[0]), parts)


def broadcast(host: Host, size: int) -> Timed:
    data = _floats(size)
    return lambda: dist.broadcast(data, 0)


def send_receive(host: Host, size: int) -> Timed:
    """From rank 0 to rank 1."""
    data = _floats(size)
    if host.rank == 0:
        return lambda: dist.send(data, 1)
    return lambda: dist.recv(data, 0) if host.rank == 1 else None


def ping_pong(host: Host, round_trips: int) -> Timed:
    """A few bytes back and forth between ranks 0 and 1; returns seconds one way."""
    data = _floats(FLOAT)

    def timed() -> float:
        start = time.monotonic()
        for message in range(2 * round_trips):
            if host.rank == message % 2:
                dist.send(data, 1 - host.rank)
            elif host.rank < 2:
                dist.recv(data, 1 - host.rank)
        return (time.monotonic() - start) / (2 * round_trips)

    return timed


def parameter_server(host: Host, size: int, pauses: Sequence[float] = ()) -> Timed:
    """All push `size` bytes to rank 0, which answers them all when it has everything."""
    workers = range(1, host.size)
    arrived = [_floats(size) for _ in workers]

    def serve() -> None:
        for work in [dist.irecv(arrived[w - 1], w) for w in workers]:
            work.wait()
        total = arrived[0]
        for update in arrived[1:]:
            total += update
        for work in [dist.isend(total, w) for w in workers]:
            work.wait()

    def work() -> None:
        _pause(host, pauses)
        dist.send(arrived[0], 0)
        dist.recv(arrived[0], 0)

    return serve if host.rank == 0 else work


def gossip(
    host: Host, size: int, rounds: Sequence[Mapping[int, int]], pauses: Sequence[float] = ()
) -> Timed:
    """In each round a rank computes (sleeps), then exchanges `size` bytes with its partner.

    rounds[t][r] is rank r's partner in round t. The receive is posted before anything is sent:
    otherwise its announcement would queue after the data on the same connection, while the partner
    waits for it.
    """
    ours, theirs = _floats(size), _floats(size)

    def timed() -> None:
        for partners in rounds:
            _pause(host, pauses)
            received = dist.irecv(theirs, partners[host.rank])
            dist.send(ours, partners[host.rank])
            received.wait()
            ours.add_(theirs).mul_(0.5)

    return timed


def int8_rounds(host: Host, size: int) -> Timed:
    """The sum of `size` bytes of fp32 that have been encoded as int8: by pieces, then gathered."""
    pieces = list(torch.zeros(size // FLOAT, dtype=torch.int8).chunk(host.size))
    own = torch.empty_like(pieces[0])

    def timed() -> None:
        dist.reduce_scatter(own, pieces)
        dist.all_gather(pieces, own)

    return timed


def hierarchical(host: Host, size: int, pauses: Sequence[float], period: int, rounds: int) -> Timed:
    """Workers of two neighbouring ranks add up gradients in every step, and all ranks average
    weights after `period` of them."""
    gradient, weights = _floats(size), _floats(size)
    groups = [dist.new_group([rank, rank + 1]) for rank in range(0, host.size, 2)]

    def timed() -> None:
        for _ in range(rounds):
            for _ in range(period):
                _pause(host, pauses)
                dist.all_reduce(gradient, group=groups[host.rank // 2])
            dist.all_reduce(weights)

    return timed


def away(host: Host, size: int, pauses: Sequence[float], steps: int, fails: Fails) -> Timed:
    """Workers of an asynchronous server, of which one process is away for a while: the server
    takes and gives nothing then; a worker that fails in its first step fetches weights again."""
    absence = _Absence(host, size, steps, fails)
    return absence.serve_all if host.rank == 0 else lambda: absence.work(pauses)


class _Absence:
    def __init__(self, host: Host, size: int, steps: int, fails: Fails) -> None:
        self.host, self.size, self.steps = host, size, steps
        self.rank, self.at, self.after = fails
        self.began = 0.0

    def serve_all(self) -> None:
        self.began = time.monotonic()
        workers = range(1, self.host.size)
        threads = [threading.Thread(target=self._serve, args=(each,)) for each in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _serve(self, worker: int) -> None:
        data = _floats(self.size)
        for step in range(self.steps):
            for _ in range(1 + self._fails_in(worker, step)):
                self._server_is_there()
                dist.send(data, worker)
            dist.recv(data, worker)

    def work(self, pauses: Sequence[float]) -> None:
        self.began, data = time.monotonic(), _floats(self.size)
        for step in range(self.steps):
            dist.recv(data, 0)
            if self._fails_in(self.host.rank, step):
                self._until_back()
                dist.recv(data, 0)
            _pause(self.host, pauses)
            self._server_is_there()
            dist.send(data, 0)

    def _fails_in(self, worker: int, step: int) -> bool:
        return (worker, step) == (self.rank, 0)

    def _server_is_there(self) -> None:
        if self.rank == 0 and time.monotonic() >= self.began + self.at:
            self._until_back()

    def _until_back(self) -> None:
        time.sleep(max(self.began + self.at + self.after - time.monotonic(), 0.0))


def asynchronous(
    host: Host, size: int, pauses: Sequence[Sequence[float]], bound: int | None
) -> Timed:
    """An asynchronous server: rank 0 serves each worker in a thread of its own.

    Worker r pulls, computes pauses[r - 1][t] seconds, and pushes. With a `bound` the server holds
    weights back while the worker is more than so many updates ahead of the slowest. Rank 0
    returns the staleness of every update: updates applied since its worker last pulled.
    """
    if host.rank:
        return lambda: _work(_floats(size), pauses[host.rank - 1])
    updates = len(pauses[0])
    return lambda: _Server(size, host.size - 1, updates, bound).run()


def _work(data: torch.Tensor, pauses: Sequence[float]) -> None:
    for pause in pauses:
        dist.recv(data, 0)
        time.sleep(pause)
        dist.send(data, 0)


class _Server:
    def __init__(self, size: int, workers: int, updates: int, bound: int | None) -> None:
        self.weights = _floats(size)
        self.updates, self.bound = updates, bound
        self.version = 0
        self.clocks = [0] * workers
        self.staleness: list[int] = []
        self.changed = threading.Condition()

    def run(self) -> list[int]:
        threads = [
            threading.Thread(target=self._serve, args=(worker,))
            for worker in range(len(self.clocks))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self.staleness

    def _serve(self, worker: int) -> None:
        data = torch.empty_like(self.weights)
        for _ in range(self.updates):
            with self.changed:
                self.changed.wait_for(lambda: self._may_go_on(worker))
                pulled = self.version
                data.copy_(self.weights)
            dist.send(data, worker + 1)
            dist.recv(data, worker + 1)
            with self.changed:
                self._apply(worker, data, pulled)

    def _apply(self, worker: int, data: torch.Tensor, pulled: int) -> None:
        self.staleness.append(self.version - pulled)
        self.weights -= data
        self.version += 1
        self.clocks[worker] += 1
        self.changed.notify_all()

    def _may_go_on(self, worker: int) -> bool:
        return self.bound is None or self.clocks[worker] - min(self.clocks) <= self.bound


class _Sleep(torch.autograd.Function):
    """Compute that takes time but no core."""

    @staticmethod
    def forward(  # type: ignore[override]
        context: Any, data: torch.Tensor, weight: torch.Tensor, forward: float, backward: float
    ) -> torch.Tensor:
        context.backward_seconds, context.shape = backward, weight.shape
        time.sleep(forward)
        return data.clone()

    @staticmethod
    def backward(  # type: ignore[override]
        context: Any, gradient: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, None, None]:
        time.sleep(context.backward_seconds)
        return gradient, torch.zeros(context.shape), None, None


class _Layer(torch.nn.Module):
    def __init__(self, size: int, forward: float, backward: float) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(_floats(size))
        self.seconds = (forward, backward)

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        return _Sleep.apply(data, self.weight, *self.seconds)


def ddp_sleeping(
    host: Host,
    layers: int,
    size: int,
    forward: float,
    backward: float,
    bucket: float,
    slowdown: Sequence[float] = (),
) -> Timed:
    """A step of DDP whose layers, of `size` bytes each, sleep; buckets of `bucket` MiB."""
    factor = slowdown[host.rank] if slowdown else 1.0
    model = torch.nn.Sequential(
        *(_Layer(size, factor * forward, factor * backward) for _ in range(layers))
    )
    return _step(model, torch.zeros(1, requires_grad=True), bucket)


def _step(model: torch.nn.Module, data: torch.Tensor, bucket: float) -> Timed:
    parallel = DistributedDataParallel(model, bucket_cap_mb=bucket)

    def timed() -> str:
        parallel.zero_grad(set_to_none=False)
        parallel(data).sum().backward()
        return str(parallel._get_ddp_logging_data().get("rebuilt_bucket_sizes", ""))

    return timed


@contextmanager
def _below_gloo() -> Iterator[None]:
    """At a lower priority than Gloo's thread, which real compute must not starve."""
    kernel.run_first(kernel.COMPUTE)
    try:
        yield
    finally:
        kernel.run_first()


def profiled(host: Host, step_of: str, folder: str, **arguments: Any) -> Timed:
    """Three steps of another pattern under torch's profiler, whose trace is left in a folder."""
    step = globals()[step_of](host, **arguments)
    steps = schedule(wait=0, warmup=3, active=3, repeat=1)

    def written(profiler: profile) -> None:
        profiler.export_chrome_trace(f"{folder}/{host.rank}.json")

    def timed() -> None:
        with profile(
            activities=[ProfilerActivity.CPU], record_shapes=True,
            schedule=steps, on_trace_ready=written,
        ) as profiler:  # fmt: skip
            for _ in range(6):
                step()
                profiler.step()

    return timed


def _network(layers: int, width: int) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(*(torch.nn.Linear(width, width, bias=False) for _ in range(layers)))


def ddp_computing(host: Host, layers: int, width: int, batch: int, bucket: float) -> Timed:
    """A step of DDP on a real multilayer perceptron."""
    step = _step(_network(layers, width), torch.ones(batch, width), bucket)

    def at_lower_priority() -> None:
        with _below_gloo():
            step()

    return at_lower_priority


def computing(host: Host, layers: int, width: int, batch: int) -> Timed:
    """The same network without DDP; returns seconds of the forward and of the backward pass."""
    model, data = _network(layers, width), torch.ones(batch, width)

    def timed() -> tuple[float, float]:
        with _below_gloo():
            model.zero_grad(set_to_none=False)
            start = time.monotonic()
            loss = model(data).sum()
            middle = time.monotonic()
            loss.backward()
            return middle - start, time.monotonic() - middle

    return timed


def jobs(host: Host, jobs: Sequence[Mapping[str, Any]]) -> Timed:
    """Jobs on hosts of their own, each of which computes (sleeps), then sums up `size` bytes, step
    after step, the first one after its `offset`; returns when each step of this host's ended."""
    groups = [dist.new_group(list(job["hosts"])) for job in jobs]
    own = [pair for pair in zip(jobs, groups, strict=True) if host.rank in pair[0]["hosts"]]

    def timed() -> list[float]:
        began, ends = time.monotonic(), []
        for job, group in own:
            data = _floats(job["size"])
            time.sleep(job["offset"])
            for _ in range(job["steps"]):
                time.sleep(job["pause"])
                dist.all_reduce(data, group=group)
                ends.append(time.monotonic() - began)
        return ends

    return timed


def beside_storage(
    host: Host, size: int, pause: float, steps: int, read: int = 0, write: int = 0, every: int = 1
) -> Timed:
    """All hosts but the last train as in `jobs`, and use the last one as their storage, each over a
    connection of its own: a loader reads `read` bytes for each step, one step ahead, and in every
    so many steps a checkpoint of `write` bytes is written beside the next ones."""
    group = dist.new_group(list(range(host.size - 1)))
    if host.rank == host.size - 1:
        storage.Server(host).start()
        return list
    connection, data = storage.Connection(host), _floats(size)

    def timed() -> list[float]:
        began, ends = time.monotonic(), []
        loader = connection.loader(read) if read else None
        for step in range(steps):
            if loader:
                loader.next()
            if write and step % every == 0:
                connection.write(write)
            time.sleep(pause)
            dist.all_reduce(data, group=group)
            ends.append(time.monotonic() - began)
        if loader:
            loader.end()
        connection.written()
        return ends

    return timed
