"""Times of collectives among ranks of this machine, or among the ranks that torchrun has started.

All ranks leave a barrier and call the collective. On one machine the processes share a clock, and a
repetition lasts from the last start to the last end. The clocks of several machines differ; there,
a repetition lasts as long as the slowest rank's call.
"""

import os
import signal
import time
from collections.abc import Sequence
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import RLock
from typing import Any, Literal, TypeVar

from sim.analysis.calibration.timing import collective_suite, process_group, torch_device
from sim.analysis.calibration.timing.calls import collective
from sim.analysis.calibration.timing.clock import Call
from sim.analysis.calibration.timing.collective_suite import CollectiveCase, Group, Suite
from sim.config import tables
from sim.config.errors import InputError
from sim.jobs.traces import operation_times
from sim.jobs.traces.operation_times import OperationTime

_LEAST, _MOST = 3, 500  # repetitions
_BUDGET = 0.06  # seconds for the repetitions of a case, if each were a single call
_IN_A_ROW = 20  # calls in each repetition on a GPU, as in nccl-tests


def repeated(
    case: CollectiveCase, groups: dict[Group, Any], rank: int, per_node: int, device: str
) -> list[float]:
    """Return the seconds of every repetition. Ranks outside of the groups only join the
    barriers."""
    import torch
    import torch.distributed as dist

    group = next((members for members in case.groups if rank in members), None)
    call = collective.call(case, group, groups[group], rank, device) if group else _nothing
    warm_up = _stamps(call, 2, device)
    slowest = torch.tensor(max(warm_up[-1][1] - warm_up[-1][0], 1e-9), device=device)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    count = max(_LEAST, min(_MOST, int(_BUDGET / float(slowest))))
    by_rank: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(by_rank, _stamps(call, count, device))
    of_members = [by_rank[member] for members in case.groups for member in members]
    return durations(of_members, one_clock=dist.get_world_size() <= per_node)


def durations(stamps: Sequence[Sequence[Sequence[float]]], *, one_clock: bool) -> list[float]:
    """Return the seconds of each repetition from every rank's (start, end).

    >>> ranks = [[(0.0, 3.0)], [(1.0, 2.5)]]
    >>> durations(ranks, one_clock=True), durations(ranks, one_clock=False)
    ([2.0], [3.0])
    """
    repetitions = list(zip(*stamps, strict=True))
    if not one_clock:
        return [max(end - start for start, end in ranks) for ranks in repetitions]
    return [
        max(end for _, end in ranks) - max(start for start, _ in ranks) for ranks in repetitions
    ]


def _stamps(call: Call, count: int, device: str) -> list[tuple[float, float]]:
    """Return the start and end of each repetition. On a GPU, a repetition makes several calls, and
    ends their mean seconds after its start."""
    import torch
    import torch.distributed as dist

    stamps, in_a_row = [], 1 if device == "cpu" else _IN_A_ROW
    for _ in range(count):
        dist.barrier()
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(in_a_row):
            call()
        if device == "cuda":
            torch.cuda.synchronize()
        stamps.append((start, start + (time.perf_counter() - start) / in_a_row))
    return stamps


def _nothing() -> None:
    """Do nothing: the call of a rank that is in no group."""


Backend = Literal["gloo", "nccl"]
Told = TypeVar("Told")

PASSES = {"quick": 3, "full": 8}  # how often each case is timed, since a machine's speed drifts
_SHARE = 0.25  # share of the free memory that buffers may fill


def time_collectives(
    backend: Backend,
    ranks: int,
    suite: Suite,
    table: Path,
    largest: float = inf,
    minutes: float = inf,
) -> list[OperationTime] | None:
    """Time the cases that `table` does not hold yet, append each reading to the table, and return
    all readings. Returns None if the `minutes` were over before the last case.

    The two buffers of the largest size fill at most a quarter of the free memory. No size is larger
    than `largest` bytes.

    Raises `InputError` if torch or a device is missing, or if a rank dies. The table then keeps
    the readings before the error.
    """
    until = time.monotonic() + 60.0 * minutes
    _check(backend)
    started = process_group.launched()
    ranks = started or ranks
    per_node = int(os.environ.get("LOCAL_WORLD_SIZE", ranks)) if started else ranks
    memory = min(_free_memory(backend) * _SHARE / per_node, 2.0 * largest)
    cases = list(collective_suite.collective_cases(ranks, per_node, suite, memory))
    wanted = collective_suite.shuffled(cases, PASSES[suite])
    missing = collective_suite.remaining(wanted, _resumed(table), per_node)
    if missing or started:  # every rank of torchrun learns from rank 0 what is missing
        device = "cuda" if backend == "nccl" else "cpu"
        _run(ranks, device, missing, per_node, device, table, started is None, until)
    if process_group.own_rank() > 0:
        return []
    found = operation_times.read(table)
    return None if collective_suite.remaining(wanted, found, per_node) else found


def _run(ranks: int, device: str, *arguments: Any) -> None:
    """Run `_on_rank` on every rank."""
    try:
        if ranks > 1:
            process_group.run(_on_rank, ranks, *arguments, device=device, threads=1)
        else:
            _alone("nccl" if device == "cuda" else "gloo", *arguments)
    except RuntimeError as error:  # raised under torchrun if another rank dies
        rank = f"rank {process_group.own_rank()}"
        raise InputError(rank, process_group.one_line(error), "the times so far are kept") from None


def _alone(backend: Backend, *arguments: Any) -> None:
    """Run a single rank in this process, as a group of its own."""
    import torch.distributed as dist

    process_group.listen_here()
    with TemporaryDirectory() as folder:
        dist.init_process_group(backend, init_method=f"file://{folder}/s", rank=0, world_size=1)
        try:
            _on_rank(0, *arguments)
        finally:
            dist.destroy_process_group()


def _check(backend: Backend) -> None:
    torch_device.require("cpu")
    import torch
    import torch.distributed as dist

    if not dist.is_available():
        fault = "this build of torch has no torch.distributed"
        raise InputError("sim calibrate", fault, "install another build")
    if backend == "nccl" and not (torch.cuda.is_available() and dist.is_nccl_available()):
        fault = "there is no CUDA device, or no NCCL in this torch"
        raise InputError("--backend nccl", fault, "use --backend gloo")


def _free_memory(backend: Backend) -> float:
    """Return the free bytes of the device or of the host."""
    if backend == "nccl":
        import torch

        return float(torch.cuda.mem_get_info()[0])
    return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def _resumed(table: Path) -> list[OperationTime]:
    """Return the readings of an earlier call, without an unfinished last line."""
    if not table.exists():
        if process_group.own_rank() == 0:
            operation_times.write([], table)
        return []
    heading, mend = operation_times.heading(), process_group.own_rank() == 0
    tables.without_torn_end(table, heading=heading, mend=mend)
    return operation_times.read(table)


def _on_rank(
    rank: int,
    cases: Sequence[CollectiveCase],
    per_node: int,
    device: str,
    table: Path,
    spawned: bool,
    until: float,
) -> None:
    """Do a rank's part of every case; rank 0 appends the readings to the table."""
    import torch.distributed as dist
    from tqdm import tqdm

    if spawned and dist.get_world_size() > 1:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends the ranks
    _let_ranks_share_a_device(rank, device)
    # Rank 0 decides which cases are left: other ranks may see another table or have more memory.
    cases = cases if spawned else _of_rank_0(cases)
    distinct = dict.fromkeys(members for case in cases for members in case.groups)
    groups = {members: dist.new_group(list(members)) for members in distinct}
    tqdm.set_lock(RLock())  # a rank that is ended leaves no semaphore behind
    for case in tqdm(cases, unit="case", disable=None if rank == 0 else True, leave=False):
        if until < inf and _of_rank_0(time.monotonic() > until):
            break
        times = repeated(case, groups, rank, per_node, device)
        if rank == 0:
            measured = OperationTime(
                operation=case.kind,
                **operation_times.of_samples(times),
                ranks=case.ranks,
                nodes=case.nodes(per_node),
                groups=len(case.groups),
                bytes=float(case.size),
                dtype="fp32",
                source=dist.get_backend(),
            )
            with table.open("a", encoding="utf-8") as file:
                file.write(operation_times.line(measured))


def _of_rank_0(told: Told) -> Told:
    """Return rank 0's value on every rank."""
    import torch.distributed as dist

    shared = [told]
    dist.broadcast_object_list(shared, 0)
    return shared[0]


def _let_ranks_share_a_device(rank: int, device: str) -> None:
    """Let ranks share a device. NCCL refuses this within a host, so each rank poses as a host of
    its own, and ranks communicate over sockets."""
    if device != "cuda":
        return
    import torch
    import torch.distributed as dist

    if dist.get_world_size() > torch.cuda.device_count() and "LOCAL_RANK" not in os.environ:
        os.environ.setdefault("NCCL_HOSTID", f"rank-{rank}")
