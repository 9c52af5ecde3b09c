"""A process group on this machine, whose processes are started here or by torchrun.

If a rank dies, by an error or a signal, the other ranks are ended, and the caller gets the error of
the rank that died.
"""

import logging
import os
import pickle
import tempfile
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from multiprocessing import parent_process
from pathlib import Path
from threading import Thread
from typing import Any

from sim.config.errors import InputError

Task = Callable[..., Any]

_TIMEOUT = timedelta(minutes=10)
_ENDED = "the other ranks were ended"


def _member(
    task: Task,
    arguments: tuple[Any, ...],
    ranks: int,
    device: str,
    threads: int,
    store: str,
    rank: int,
) -> Any:
    """Join the process group, whose ranks meet at `store`, do the task, and leave."""
    import torch
    import torch.distributed as dist

    if threads:
        torch.set_num_threads(threads)
    if device == "cuda":
        torch.cuda.set_device(rank % torch.cuda.device_count())
    listen_here()
    backend = "nccl" if device == "cuda" else "gloo"
    dist.init_process_group(
        backend, init_method=store, rank=rank, world_size=ranks, timeout=_TIMEOUT
    )
    answer = task(rank, *arguments)  # a rank that fails closes its connections when it ends
    with suppress(Exception):  # leaving fails if peers have died
        dist.destroy_process_group()
    return answer


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
    default. If a rank dies, ends the other ranks and raises `InputError` with the rank's error.
    """
    member = partial(_member, task, arguments, ranks, device, threads)
    started = launched()
    if started is not None:
        if started != ranks:
            fault = f"torchrun started {started} ranks, the scenario has {ranks}"
            raise InputError(
                "torchrun", fault, f"--nproc-per-node={ranks}, or --set gpus={started}"
            )
        return member("env://", own_rank())
    if ranks == 1:
        return task(0, *arguments)
    with tempfile.TemporaryDirectory() as folder:
        return _spawned(partial(member, f"file://{folder}/store"), ranks, Path(folder))


def _spawned(member: Callable[[int], Any], ranks: int, folder: Path) -> Any:
    """Start a process for each rank, and return rank 0's answer. The processes write the answer and
    the first error into files of the folder."""
    from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException, spawn

    quiet = logging.getLogger("torch.multiprocessing.spawn")
    quiet.setLevel(logging.ERROR)  # torch warns of each rank that it ends
    started = spawn(  # type: ignore[no-untyped-call, unused-ignore]
        _child, (member, folder), ranks, join=False, daemon=True
    )
    try:
        while not started.join():
            pass
    except ProcessExitedException as error:
        code = error.exit_code
        fault = f"died by signal {-code}" if code < 0 else f"died with exit code {code}"
        raise InputError(f"rank {error.error_index}", fault, _ENDED) from None
    except ProcessRaisedException:
        where, fault = (folder / "error").read_text().split("\n")
        raise InputError(where, fault, _ENDED) from None
    finally:
        for process in started.processes:
            process.kill()
    return pickle.loads((folder / "answer").read_bytes())


def _child(rank: int, member: Callable[[int], Any], folder: Path) -> None:
    """Run a rank's task in its own process. If a rank fails, its peers fail later, with a broken
    connection."""
    Thread(target=_end_with_parent, daemon=True).start()
    try:
        answer = member(rank)
    except Exception as error:
        with suppress(FileExistsError), (folder / "error").open("x") as file:
            file.write(f"rank {rank}\n{one_line(error)}")
        raise
    if rank == 0:
        (folder / "answer").write_bytes(pickle.dumps(answer))


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
