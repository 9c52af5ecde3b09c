"""Run tasks in this process, on all cores (joblib), or on a Dask cluster."""

import os
import pickle
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import TypeVar

from sim.analysis.program_version import program_version
from sim.config import limit, progress
from sim.config.errors import InputError
from sim.config.optional import needed

Task = TypeVar("Task")
Answer = TypeVar("Answer")
Jobs = int | str | None  # processes on this machine (None: one per core), or a cluster's address


def cores() -> int:
    """Return the number of cores that this process may use."""
    from joblib import cpu_count

    return int(cpu_count())


def answers(
    work: Callable[[Task], Answer], tasks: Sequence[Task], jobs: Jobs = None, *, before: int = 0
) -> Iterator[Answer]:
    """Yield the answers of `work` to `tasks` in the order of completion. `jobs` is a number of
    processes, or the address of a Dask cluster. `before` is the number of tasks of an earlier call,
    whose processes are used again even for a single task. Raises `InputError` if dask is not
    installed, if nothing answers at the address, or if workers run another program."""
    if isinstance(jobs, str):
        return cluster(partial(_as_here, program_version(), jobs, work), tasks, address=jobs)
    return here(work, tasks, jobs, before)


def _as_here(version: str, address: str, work: Callable[[Task], Answer], task: Task) -> Answer:
    """Do a task's work in a Dask worker. Raises `InputError` if the worker's program is not the
    `version` of the program that asks."""
    if program_version() != version:
        fault = "a worker runs another version of sim, or of a package that it computes with"
        raise InputError(f"--jobs {address}", fault, "install the same versions everywhere")
    return work(task)


def here(
    work: Callable[[Task], Answer],
    tasks: Sequence[Task],
    jobs: int | None = None,
    before: int = 0,
) -> Iterator[Answer]:
    """Yield the answers from processes of this machine."""
    jobs = min(jobs or cores(), max(len(tasks), before, 1))
    if jobs == 1:
        yield from map(work, tasks)
        return
    from joblib import Parallel, delayed

    # Two warnings of joblib are needless. A caller that stops early knows that tasks are left.
    # Processes that grow large are replaced by new processes, which still do all tasks.
    for expected in ("[0-9]+ tasks (which were|have been)", "A worker stopped while some jobs"):
        warnings.filterwarnings("ignore", expected, UserWarning, "joblib")
    pool = Parallel(n_jobs=jobs, return_as="generator_unordered", pre_dispatch="8*n_jobs")
    child = delayed(_as_child)
    _quiet_when_stopped()
    here = os.getpid(), os.getcwd(), limit.allowed()
    with _deaf():
        answers = pool(child(*here, work, task) for task in tasks)
    yield from (pickle.loads(answer) if isinstance(answer, bytes) else answer for answer in answers)


@contextmanager
def _deaf() -> Iterator[None]:
    """Let processes started in this block ignore Ctrl-C; this process receives it and stops
    them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@cache
def _quiet_when_stopped() -> None:
    """Print no traceback of joblib's thread, whose tasks Ctrl-C has taken away."""
    usual = threading.excepthook

    def hook(told: threading.ExceptHookArgs) -> None:
        name = told.thread.name if told.thread else ""
        if not (name == "ExecutorManagerThread" and issubclass(told.exc_type, KeyError)):
            usual(told)

    threading.excepthook = hook


def _as_child(
    parent: int, folder: str, allowed: float, work: Callable[[Task], Answer], task: Task
) -> bytes | Answer:
    if os.getpid() != parent:
        progress.silence()
    _die_with(parent)
    os.chdir(folder)  # joblib reuses its processes; names of user files are relative to the folder
    limit.allow(allowed)
    return _pickled(work(task))


def _pickled(answer: Answer) -> bytes | Answer:
    """Return an answer as bytes. An answer that only joblib's pickler can send is returned as it
    is; this pickler takes six times as long."""
    try:
        return pickle.dumps(answer)
    except (AttributeError, TypeError, pickle.PicklingError):  # a class of a notebook
        return answer


@cache
def _die_with(parent: int) -> None:
    """End this process soon after its parent has ended, even if the parent was killed."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(2.0)
        os._exit(1)

    if os.getpid() != parent:
        threading.Thread(target=watch, daemon=True).start()


def cluster(
    work: Callable[[Task], Answer], tasks: Sequence[Task], *, address: str
) -> Iterator[Answer]:
    """Yield answers from the workers of a Dask scheduler. Tasks of a dead worker are done again."""
    where = f"--jobs {address}"
    dask = needed("distributed", where, "cluster")
    try:
        client = dask.Client(address, timeout="10s", set_as_default=False)
    except (OSError, ValueError, TypeError, RuntimeError) as error:  # also TLS without a key
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        remedy = "start one with `dask scheduler`, give its address: tcp://host:8786"
        raise InputError(where, f"no cluster answers there ({reason})", remedy) from None
    with client:
        # Equal points must not be merged into one task: pure=False.
        futures = client.map(work, list(tasks), pure=False, retries=3)
        yield from (
            answer for _, answer in dask.as_completed(futures, loop=client.loop, with_results=True)
        )
