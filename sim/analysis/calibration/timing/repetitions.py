"""Repeating a collective on all ranks at once, and how long each repetition took.

All ranks leave a barrier and call; a repetition lasts from the last start to the last end, on the
clock that processes of one machine share. Across machines, whose clocks differ, it lasts as long
as the slowest rank was in the call.
"""

import time
from collections.abc import Sequence
from typing import Any

from sim.analysis.calibration.timing.calls import collective
from sim.analysis.calibration.timing.clock import Call
from sim.analysis.calibration.timing.collective_suite import CollectiveCase, Group

_LEAST, _MOST = 3, 500  # repetitions
_BUDGET = 0.06  # seconds that the repetitions of one case may take in one pass
_IN_A_ROW = 20  # calls of a repetition on a GPU, as nccl-tests does


def repeated(
    case: CollectiveCase, groups: dict[Group, Any], rank: int, per_node: int, device: str
) -> list[float]:
    """Seconds of every repetition. Ranks outside of the groups take part in the barriers only."""
    import torch
    import torch.distributed as dist

    own = next((members for members in case.groups if rank in members), None)
    call = collective.call(case, own, groups[own], rank, device) if own else _nothing
    warm_up = _stamps(call, 2, device)
    slowest = torch.tensor(max(warm_up[-1][1] - warm_up[-1][0], 1e-9), device=device)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    count = max(_LEAST, min(_MOST, int(_BUDGET / float(slowest))))
    by_rank: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(by_rank, _stamps(call, count, device))
    of_members = [by_rank[member] for members in case.groups for member in members]
    return durations(of_members, one_clock=dist.get_world_size() <= per_node)


def durations(stamps: Sequence[Sequence[Sequence[float]]], *, one_clock: bool) -> list[float]:
    """Seconds of each repetition from every rank's (start, end).

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
    """When each repetition started and ended; on a GPU it is one of several calls in a row."""
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
    """The call of a rank that is in no group."""
