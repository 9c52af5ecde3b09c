"""Kernels of the optimizer step, on parameters with gradients."""

from typing import Any

from sim.analysis.calibration.timing.calls.tensors import Random
from sim.analysis.calibration.timing.clock import Call


def adam(rows: int, width: int, random: Random) -> Call:
    import torch

    optimizer = torch.optim.AdamW(_parameters(rows, width, random), fused=True)
    return lambda: optimizer.step()


def adam_for_each(rows: int, width: int, random: Random) -> Call:
    import torch

    optimizer = torch.optim.AdamW(_parameters(rows, width, random), foreach=True)
    return lambda: optimizer.step()


def gradient_norm(rows: int, width: int, random: Random) -> Call:
    import torch

    gradients = [parameter.grad for parameter in _parameters(rows, width, random)]
    return lambda: torch.nn.utils.get_total_norm(gradients)


def clip_gradients(rows: int, width: int, random: Random) -> Call:
    import torch

    parameters = _parameters(rows, width, random)
    norm = torch.tensor(1.0, device=parameters[0].device)
    return lambda: torch.nn.utils.clip_grads_with_norm_(parameters, 1.0, norm)


def _parameters(rows: int, width: int, random: Random) -> list[Any]:
    """Parameters of at most `width` x `width`, with gradients."""
    import torch

    parameters = []
    for first in range(0, rows, width):
        parameter = torch.nn.Parameter(random(min(width, rows - first), width))
        parameter.grad = torch.randn_like(parameter)
        parameters.append(parameter)
    return parameters
