"""Timing collectives among ranks of this machine, or those that torchrun has started.

All ranks leave a barrier and call; a repetition lasts from the last start to the last end, on the
clock that processes of one machine share. Across machines, whose clocks differ, it lasts as long
as the slowest rank was in the call.
"""

import os
import signal
import time
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import RLock
from typing import Any, Literal

from sim.calibration.timing import exchanges as suites
from sim.calibration.timing import ranks as processes
from sim.calibration.timing.exchanges import WIDTH, Exchange, Suite
from sim.config.errors import InputError
from sim.formats import operation_times
from sim.formats.operation_times import OperationTime

Backend = Literal["gloo", "nccl"]
Call = Callable[[], Any]

_LEAST, _MOST = 3, 500  # repetitions
_BUDGET = 0.06  # seconds that those of one exchange may take in one pass
PASSES = {"quick": 3, "full": 8}  # over all exchanges, as machines drift
_IN_A_ROW = 20  # calls of a repetition on a GPU, as nccl-tests does
_SHARE = 0.25  # of the memory that is free


def calibrate(
    backend: Backend, ranks: int, suite: Suite, table: Path, largest: float = inf
) -> list[OperationTime]:
    """Time what `table` does not hold yet, append each reading to it, and give them all.

    Sizes end where two buffers fill a quarter of the memory, or at `largest` bytes.

    Raises `InputError` where torch or a device is missing, or with the error of a rank that died;
    what was measured until then is in the table.
    """
    _check(backend)
    started = processes.launched()
    ranks = started or ranks
    per_node = int(os.environ.get("LOCAL_WORLD_SIZE", ranks)) if started else ranks
    memory = min(_memory(backend) * _SHARE / per_node, 2.0 * largest)
    wanted = list(suites.exchanges(ranks, per_node, suite, memory))
    todo = suites.left(suites.shuffled(wanted, PASSES[suite]), _resumed(table), per_node)
    if todo or started:  # every rank of torchrun learns from rank 0 what is left
        device = "cuda" if backend == "nccl" else "cpu"
        _run(ranks, device, todo, per_node, device, table, started is None)
    return operation_times.read(table) if processes.own_rank() == 0 else []


def _run(ranks: int, device: str, *arguments: Any) -> None:
    """`_rank` in every rank."""
    try:
        if ranks > 1:
            processes.run(_rank, ranks, *arguments, device=device, threads=1)
        else:
            _alone("nccl" if device == "cuda" else "gloo", *arguments)
    except RuntimeError as error:  # under torchrun a peer's death shows as one
        rank = f"rank {processes.own_rank()}"
        raise InputError(rank, processes.one_line(error), "what was measured is kept") from None


def _alone(backend: Backend, *arguments: Any) -> None:
    """One rank, in this process, as a group of its own."""
    import torch.distributed as dist

    with TemporaryDirectory() as folder:
        dist.init_process_group(backend, init_method=f"file://{folder}/s", rank=0, world_size=1)
        try:
            _rank(0, *arguments)
        finally:
            dist.destroy_process_group()


def _check(backend: Backend) -> None:
    try:
        import torch
        import torch.distributed as dist
    except ImportError:
        raise InputError(
            "sim calibrate",
            "needs torch, which is not installed",
            "pip install 'clustersim[torch]'",
        ) from None
    if not dist.is_available():
        raise InputError("sim calibrate", "this torch has no torch.distributed", "install another")
    if backend == "nccl" and not (torch.cuda.is_available() and dist.is_nccl_available()):
        what = "there is no CUDA device, or no NCCL in this torch"
        raise InputError("--backend nccl", what, "use --backend gloo")


def _memory(backend: Backend) -> float:
    """Bytes that are free, of the device or of the host."""
    if backend == "nccl":
        import torch

        return float(torch.cuda.mem_get_info()[0])
    return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def _resumed(table: Path) -> list[OperationTime]:
    """What an earlier call has measured, without a last line that it did not finish."""
    if not table.exists():
        if processes.own_rank() == 0:
            operation_times.write([], table)
        return []
    text = table.read_text(encoding="utf-8", errors="replace")
    whole = text[: text.rfind("\n") + 1]
    if whole != text and processes.own_rank() == 0:
        table.write_text(whole, encoding="utf-8")
    return operation_times.read(table)


def _rank(
    rank: int,
    todo: Sequence[Exchange],
    per_node: int,
    device: str,
    table: Path,
    spawned: bool,
) -> None:
    """What each rank does: its part of every exchange; rank 0 keeps the readings."""
    import torch.distributed as dist
    from tqdm import tqdm

    if spawned and dist.get_world_size() > 1:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends the ranks
    _tell_apart(rank, device)
    todo = todo if spawned else _agreed(todo)
    distinct = dict.fromkeys(members for one in todo for members in one.groups)
    groups = {members: dist.new_group(list(members)) for members in distinct}
    tqdm.set_lock(RLock())  # a rank that is ended leaves no semaphore behind
    for one in tqdm(todo, unit="case", disable=None if rank == 0 else True, leave=False):
        times = _times(one, groups, rank, per_node, device)
        if rank == 0:
            found = OperationTime(
                operation=one.kind,
                **operation_times.of_samples(times),
                ranks=one.ranks,
                nodes=one.nodes(per_node),
                groups=len(one.groups),
                bytes=float(one.size),
                dtype="fp32",
                source=dist.get_backend(),
            )
            with table.open("a", encoding="utf-8") as file:
                file.write(operation_times.line(found))


def _agreed(todo: Sequence[Exchange]) -> Sequence[Exchange]:
    """What rank 0 finds left: others may see another table, or have more memory."""
    import torch.distributed as dist

    shared = [todo]
    dist.broadcast_object_list(shared, 0)
    return shared[0]


def _tell_apart(rank: int, device: str) -> None:
    """NCCL takes ranks that share a device where each seems to be a host, over sockets."""
    if device != "cuda":
        return
    import torch
    import torch.distributed as dist

    if dist.get_world_size() > torch.cuda.device_count() and "LOCAL_RANK" not in os.environ:
        os.environ.setdefault("NCCL_HOSTID", f"rank-{rank}")


def _times(one: Exchange, groups: Any, rank: int, per_node: int, device: str) -> list[float]:
    """Seconds of every repetition. Ranks outside of the groups take part in the barriers only."""
    import torch
    import torch.distributed as dist

    mine = next((members for members in one.groups if rank in members), None)
    call = _call(one, mine, groups[mine], rank, device) if mine else _nothing
    warm = _repeated(call, 2, device)
    took = torch.tensor(max(warm[-1][1] - warm[-1][0], 1e-9), device=device)
    dist.all_reduce(took, dist.ReduceOp.MAX)
    count = max(_LEAST, min(_MOST, int(_BUDGET / float(took))))
    stamps = torch.tensor(_repeated(call, count, device), dtype=torch.float64, device=device)
    every = [torch.empty_like(stamps) for _ in range(dist.get_world_size())]
    dist.all_gather(every, stamps)
    within = [every[member].tolist() for members in one.groups for member in members]
    return spans(within, one_clock=dist.get_world_size() <= per_node)


def spans(stamps: Sequence[Sequence[Sequence[float]]], *, one_clock: bool) -> list[float]:
    """Seconds of each repetition from every rank's (start, end).

    >>> ranks = [[(0.0, 3.0)], [(1.0, 2.5)]]
    >>> spans(ranks, one_clock=True), spans(ranks, one_clock=False)
    ([2.0], [3.0])
    """
    repetitions = list(zip(*stamps, strict=True))
    if not one_clock:
        return [max(end - start for start, end in one) for one in repetitions]
    return [max(end for _, end in one) - max(start for start, _ in one) for one in repetitions]


def _repeated(call: Call, count: int, device: str) -> list[tuple[float, float]]:
    """When each repetition started and ended; on a GPU it is one of several calls in a row."""
    import torch
    import torch.distributed as dist

    found, each = [], 1 if device == "cpu" else _IN_A_ROW
    for _ in range(count):
        dist.barrier()
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(each):
            call()
        if device == "cuda":
            torch.cuda.synchronize()
        found.append((start, start + (time.perf_counter() - start) / each))
    return found


def _nothing() -> None:
    """The call of a rank that looks on."""


def _call(one: Exchange, members: tuple[int, ...], group: Any, rank: int, device: str) -> Call:
    """The collective on buffers of its own, random as data are."""
    import torch
    import torch.distributed as dist

    elements = one.size // WIDTH
    buffer = torch.randn(elements, device=device)
    part, first = torch.randn(elements // len(members), device=device), members[0]
    match one.kind:
        case "all_reduce":
            return lambda: dist.all_reduce(buffer, group=group)
        case "all_gather":
            gather = _newest("all_gather_single", "all_gather_into_tensor")
            return lambda: gather(buffer, part, group=group)
        case "reduce_scatter":
            scatter = _newest("reduce_scatter_single", "reduce_scatter_tensor")
            return lambda: scatter(part, buffer, group=group)
        case "broadcast":
            return lambda: dist.broadcast(buffer, first, group=group)
        case "reduce":
            return lambda: dist.reduce(buffer, first, group=group)
        case "all_to_all":
            received = torch.empty_like(buffer)
            return lambda: dist.all_to_all_single(received, buffer, group=group)
    if rank == first:
        return lambda: dist.send(buffer, members[1], group=group)
    return lambda: dist.recv(buffer, first, group=group)


def _newest(*names: str) -> Callable[..., Any]:
    """The first of these names that this torch has."""
    import torch.distributed as dist

    found: Callable[..., Any] = next(getattr(dist, name) for name in names if hasattr(dist, name))
    return found
