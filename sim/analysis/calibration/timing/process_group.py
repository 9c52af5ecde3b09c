"""A process group on this machine, whose processes are started here or by torchrun.

If a rank dies, by an error or a signal, the other ranks are ended, and the caller gets its error.
"""

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from threading import Thread
from typing import Any

from sim.config.dataclass import dataclass
from sim.config.errors import InputError

Task = Callable[..., Any]

# If a rank dies, its peers fail, too, with a broken connection. After the first error, other ranks
# have this time (s) to report, so that the reports include the error that caused all others.
SETTLING = 3.0
_TIMEOUT = timedelta(minutes=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Membership:
    """The task of each process of a group, and how the process joins; ranks meet at `store`.

    `threads` is torch's number of threads in each process; 0 keeps torch's own.
    """

    task: Task
    arguments: Sequence[Any]
    ranks: int
    device: str
    threads: int
    store: str

    def execute(self, rank: int) -> Any:
        """Join the process group, do the task, and leave."""
        import torch
        import torch.distributed as dist

        if self.threads:
            torch.set_num_threads(self.threads)
        if self.device == "cuda":
            torch.cuda.set_device(rank % torch.cuda.device_count())
        listen_here()
        backend = "nccl" if self.device == "cuda" else "gloo"
        dist.init_process_group(
            backend, init_method=self.store, rank=rank, world_size=self.ranks, timeout=_TIMEOUT
        )
        try:
            return self.task(rank, *self.arguments)
        finally:
            with suppress(Exception):  # leaving fails if peers have died
                dist.destroy_process_group()


def listen_here() -> None:
    """Let ranks of one machine listen on the loopback unless the user has chosen an interface. NCCL
    (user guide, environment variables) and gloo (torch.distributed) read NCCL_SOCKET_IFNAME and
    GLOO_SOCKET_IFNAME."""
    ranks = os.environ.get("WORLD_SIZE", "1")
    if os.environ.get("LOCAL_WORLD_SIZE", ranks) == ranks:
        for library in ("NCCL", "GLOO"):
            os.environ.setdefault(f"{library}_SOCKET_IFNAME", "lo")


def launched() -> int | None:
    """Return how many ranks torchrun has started; None without torchrun."""
    return int(os.environ["WORLD_SIZE"]) if "RANK" in os.environ else None


def own_rank() -> int:
    """Return this process's rank under torchrun, else 0."""
    return int(os.environ.get("RANK", "0"))


def threads_each(processes: int) -> int:
    """Return the threads for each of several processes that share this machine's cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, (cores or 1) // processes)


def run(task: Task, ranks: int, *arguments: Any, device: str = "cpu", threads: int = 0) -> Any:
    """Run `task(rank, *arguments)` in each of `ranks` processes that form a process group.

    Returns rank 0's answer. `threads` is torch's number of threads in each process; 0 keeps torch's
    own. Raises `InputError` with the error of a rank that died, after ending the other ranks.
    """
    member_of = partial(
        _Membership, task=task, arguments=arguments, ranks=ranks, device=device, threads=threads
    )
    started = launched()
    if started is not None:
        if started != ranks:
            fault = f"torchrun started {started} ranks, the scenario has {ranks}"
            raise InputError(
                "torchrun", fault, f"--nproc-per-node={ranks}, or --set gpus={started}"
            )
        return member_of(store="env://").execute(own_rank())
    if ranks == 1:
        return task(0, *arguments)
    with tempfile.TemporaryDirectory() as folder:
        return _spawned(member_of(store=f"file://{folder}/store"))


def _spawned(membership: _Membership) -> Any:
    """Start a process for each rank, and return rank 0's answer."""
    import torch.multiprocessing as mp

    context = mp.get_context("spawn")
    ranks_by_pipe: dict[Any, int] = {}
    processes = []
    for rank in range(membership.ranks):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_child, args=(sender, membership, rank), daemon=True)
        process.start()
        sender.close()
        ranks_by_pipe[receiver] = rank
        processes.append(process)
    try:
        answers = _collected(ranks_by_pipe, processes)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join(5)
            if process.is_alive():
                process.kill()
    return answers[0]


def _collected(ranks_by_pipe: dict[Any, int], processes: Sequence[Any]) -> dict[int, Any]:
    """Return every rank's answer. Raises `InputError` with the error of the first failed rank."""
    answers: dict[int, Any] = {}
    errors: dict[int, str] = {}
    deadline = float("inf")
    waiting = dict(ranks_by_pipe)
    while waiting and time.monotonic() < deadline:
        for pipe in wait(list(waiting), timeout=0.2):
            rank = waiting.pop(pipe)
            kind, value = _received(pipe, processes[rank])
            (answers if kind == "answer" else errors)[rank] = value
        if errors:
            deadline = min(deadline, time.monotonic() + SETTLING)
    if errors:
        rank = min(errors, key=lambda rank: (_is_consequence(errors[rank]), rank))
        raise InputError(f"rank {rank}", errors[rank], "the other ranks were ended")
    return answers


def _received(pipe: Any, process: Any) -> tuple[str, Any]:
    with suppress(EOFError, OSError):
        kind, value = pipe.recv()
        return str(kind), value
    process.join(5)
    code = process.exitcode
    how = f"by signal {-code}" if code is not None and code < 0 else f"with exit code {code}"
    return "error", f"died {how}"


def _is_consequence(error: str) -> bool:
    """Return whether an error is only the broken connection to a rank that died."""
    return any(word in error for word in ("onnection", "gloo", "NCCL", "ncclRemote"))


def _child(pipe: Connection, membership: _Membership, rank: int) -> None:
    """Run a rank's task in its own process, and send its answer or its error."""
    Thread(target=_end_with_parent, daemon=True).start()
    try:
        pipe.send(("answer", membership.execute(rank)))
    except Exception as error:  # the parent prints any error
        pipe.send(("error", one_line(error)))


def _end_with_parent() -> None:
    """Wait until the parent ends, for any reason, then end this process."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def one_line(error: BaseException) -> str:
    """Return the type of an error and the first line of its message.

    >>> one_line(ValueError("no such thing\\n  at line 3"))
    'ValueError: no such thing'
    """
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
