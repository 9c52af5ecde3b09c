"""Ranks on this machine: processes of our own, or those that torchrun has started.

A rank that dies, by an error or a signal, takes the others with it: they are ended, and its error
is what the caller gets.
"""

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from threading import Thread
from typing import Any

from sim.config.errors import InputError

Task = Callable[..., Any]

# A peer that died shows in the others as a broken connection: such errors wait this long (s) for
# the error that caused them.
_SETTLING = 3.0
_LONGEST = timedelta(minutes=10)


def launched() -> int | None:
    """How many ranks torchrun has started, or None where it has not."""
    return int(os.environ["WORLD_SIZE"]) if "RANK" in os.environ else None


def own_rank() -> int:
    """This process's rank under torchrun, else 0."""
    return int(os.environ.get("RANK", "0"))


def run(task: Task, ranks: int, *arguments: Any, device: str = "cpu", threads: int = 0) -> Any:
    """`task(rank, *arguments)` in each of `ranks` processes that form a process group.

    Gives rank 0's answer. `threads` are torch's in each process; 0 leaves them alone. Raises
    `InputError` with the error of a rank that died, and ends the others.
    """
    started = launched()
    if started is not None:
        if started != ranks:
            what = f"torchrun started {started} ranks, the scenario has {ranks}"
            raise InputError("torchrun", what, f"--nproc-per-node={ranks}, or --set gpus={started}")
        return _body(task, own_rank(), ranks, arguments, device, threads, "env://")
    if ranks == 1:
        return task(0, *arguments)
    with tempfile.TemporaryDirectory() as folder:
        return _spawned(task, ranks, arguments, device, threads, f"file://{folder}/store")


def _spawned(
    task: Task, ranks: int, arguments: Sequence[Any], device: str, threads: int, store: str
) -> Any:
    import torch.multiprocessing as mp

    context = mp.get_context("spawn")
    ends: dict[Any, int] = {}
    processes = []
    for rank in range(ranks):
        here, there = context.Pipe(duplex=False)
        process = context.Process(
            target=_child,
            args=(there, task, rank, ranks, arguments, device, threads, store),
            daemon=True,
        )
        process.start()
        there.close()
        ends[here] = rank
        processes.append(process)
    try:
        answers = _collected(ends, processes)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join(5)
            if process.is_alive():
                process.kill()
    return answers[0]


def _collected(ends: dict[Any, int], processes: Sequence[Any]) -> dict[int, Any]:
    """Every rank's answer, or the error of the one that died first."""
    answers: dict[int, Any] = {}
    faults: dict[int, str] = {}
    deadline = float("inf")
    open_ends = dict(ends)
    while open_ends and time.monotonic() < deadline:
        for end in wait(list(open_ends), timeout=0.2):
            rank = open_ends.pop(end)
            kind, value = _received(end, processes[rank])
            (answers if kind == "answer" else faults)[rank] = value
        if faults:
            deadline = min(deadline, time.monotonic() + _SETTLING)
    if faults:
        rank, said = min(faults.items(), key=lambda one: (_is_echo(one[1]), one[0]))
        raise InputError(f"rank {rank}", said, "the other ranks were ended")
    return answers


def _received(end: Any, process: Any) -> tuple[str, Any]:
    with suppress(EOFError, OSError):
        kind, value = end.recv()
        return str(kind), value
    process.join(5)
    code = process.exitcode
    how = f"by signal {-code}" if code is not None and code < 0 else f"with exit code {code}"
    return "fault", f"died {how}"


def _is_echo(said: str) -> bool:
    """Whether an error is only that of a connection to a rank that died."""
    return any(word in said for word in ("onnection", "gloo", "NCCL", "ncclRemote"))


def _child(
    end: Connection,
    task: Task,
    rank: int,
    ranks: int,
    arguments: Sequence[Any],
    device: str,
    threads: int,
    store: str,
) -> None:
    """Runs in a process of its own; sends its answer or its error."""
    Thread(target=_end_with_parent, daemon=True).start()
    try:
        end.send(("answer", _body(task, rank, ranks, arguments, device, threads, store)))
    except Exception as error:  # whatever it is, the parent prints it
        end.send(("fault", one_line(error)))


def _end_with_parent() -> None:
    """Wait for the parent's end, whatever its cause, and end too."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _body(
    task: Task,
    rank: int,
    ranks: int,
    arguments: Sequence[Any],
    device: str,
    threads: int,
    store: str,
) -> Any:
    """Join the process group, work, leave."""
    import torch
    import torch.distributed as dist

    if threads:
        torch.set_num_threads(threads)
    if device == "cuda":
        torch.cuda.set_device(rank % torch.cuda.device_count())
    else:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    backend = "nccl" if device == "cuda" else "gloo"
    dist.init_process_group(
        backend, init_method=store, rank=rank, world_size=ranks, timeout=_LONGEST
    )
    try:
        return task(rank, *arguments)
    finally:
        with suppress(Exception):  # a group whose peers have died cannot be left in order
            dist.destroy_process_group()


def one_line(error: BaseException) -> str:
    """The kind of an error and the first line that it says.

    >>> one_line(ValueError("no such thing\\n  at line 3"))
    'ValueError: no such thing'
    """
    said = str(error).strip().splitlines()
    return f"{type(error).__name__}: {said[0]}" if said else type(error).__name__
