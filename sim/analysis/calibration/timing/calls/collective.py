"""Collectives as torch.distributed executes them."""

from collections.abc import Callable
from typing import Any

from sim.analysis.calibration.timing.clock import Call
from sim.analysis.calibration.timing.collective_suite import WIDTH, CollectiveCase, Group


def call(case: CollectiveCase, members: Group, group: Any, rank: int, device: str) -> Call:
    """Return a member's call on its own buffers, which hold random numbers as real data do."""
    import torch
    import torch.distributed as dist

    elements = case.size // WIDTH
    buffer = torch.randn(elements, device=device)
    part, first = torch.randn(elements // len(members), device=device), members[0]
    match case.kind:
        case "all_reduce":
            return lambda: dist.all_reduce(buffer, group=group)
        case "all_gather":
            gather = _available("all_gather_single", "all_gather_into_tensor")
            return lambda: gather(buffer, part, group=group)
        case "reduce_scatter":
            scatter = _available("reduce_scatter_single", "reduce_scatter_tensor")
            return lambda: scatter(part, buffer, group=group)
        case "broadcast":
            return lambda: dist.broadcast(buffer, first, group=group)
        case "reduce":
            return lambda: dist.reduce(buffer, first, group=group)
        case "all_to_all":
            received = torch.empty_like(buffer)
            return lambda: dist.all_to_all_single(received, buffer, group=group)
        case "point_to_point" if rank == first:
            return lambda: dist.send(buffer, members[1], group=group)
        case "point_to_point":
            return lambda: dist.recv(buffer, first, group=group)
    raise ValueError(f"no torch call for {case.kind}")


def _available(*names: str) -> Callable[..., Any]:
    """Return the first of these functions that this version of torch has."""
    import torch.distributed as dist

    function: Callable[..., Any] = next(getattr(dist, n) for n in names if hasattr(dist, n))
    return function
