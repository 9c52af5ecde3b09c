"""Where the work of a sweep runs: in this process, on all cores (joblib), on a Dask cluster."""

import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

from sim.config.errors import InputError

Task = TypeVar("Task")
Answer = TypeVar("Answer")


def cores() -> int:
    """The cores that this process may use."""
    from joblib import cpu_count

    return int(cpu_count())


def here(
    work: Callable[[Task], Answer], tasks: Sequence[Task], *, jobs: int | None = None
) -> Iterator[Answer]:
    """Answers in the order of completion, from `jobs` processes (default: one a core)."""
    jobs = min(jobs or cores(), max(len(tasks), 1))
    if jobs == 1:
        yield from map(work, tasks)
        return
    from joblib import Parallel, delayed

    # A caller that stops early knows that the rest is left undone; processes that have grown large
    # are replaced by new ones, and their tasks are done all the same.
    for expected in ("[0-9]+ tasks which were still", "A worker stopped while some jobs"):
        warnings.filterwarnings("ignore", expected, UserWarning, "joblib")
    pool = Parallel(n_jobs=jobs, return_as="generator_unordered", pre_dispatch="8*n_jobs")
    child = delayed(_as_child)
    yield from pool(child(os.getpid(), os.getcwd(), work, task) for task in tasks)


def _as_child(parent: int, folder: str, work: Callable[[Task], Answer], task: Task) -> Answer:
    _die_with(parent)
    os.chdir(folder)  # joblib keeps its processes, and the user's files are looked for from here
    return work(task)


@cache
def _die_with(parent: int) -> None:
    """End this process soon after its parent has ended; a parent that is killed cannot say so."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(2.0)
        os._exit(1)

    if os.getpid() != parent:
        threading.Thread(target=watch, daemon=True).start()


def cluster(
    work: Callable[[Task], Answer], tasks: Sequence[Task], *, address: str
) -> Iterator[Answer]:
    """The same from the workers of a Dask scheduler; the work of a dead worker is done again.

    Raises `InputError` where dask is not installed or nothing answers at the address.
    """
    where = f"--cluster {address}"
    try:
        dask: Any = import_module("distributed")
    except ImportError:
        remedy = "pip install 'clustersim[cluster]'"
        raise InputError(where, "dask is not installed", remedy) from None
    try:
        client = dask.Client(address, timeout="10s", set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        remedy = "start one with `dask scheduler`, give its address: tcp://host:8786"
        raise InputError(where, f"no cluster answers there ({reason})", remedy) from None
    with client:
        # Equal points must not be merged into one task: pure=False.
        futures = client.map(work, list(tasks), pure=False, retries=3)
        yield from (
            answer for _, answer in dask.as_completed(futures, loop=client.loop, with_results=True)
        )
