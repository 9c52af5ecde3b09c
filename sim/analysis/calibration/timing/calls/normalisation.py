"""Layer and RMS normalisation, forward and backward."""

from collections.abc import Callable
from typing import Any

from sim.analysis.calibration.timing.calls.tensors import Random, backward
from sim.analysis.calibration.timing.clock import Call


def layer_norm(rows: int, width: int, random: Random) -> Call:
    return _forward(_layer_norm, rows, width, random)


def layer_norm_gradient(rows: int, width: int, random: Random) -> Call:
    return _gradient(_layer_norm, rows, width, random)


def rms_norm(rows: int, width: int, random: Random) -> Call:
    return _forward(_rms_norm, rows, width, random)


def rms_norm_gradient(rows: int, width: int, random: Random) -> Call:
    return _gradient(_rms_norm, rows, width, random)


def _forward(norm: Callable[..., Any], rows: int, width: int, random: Random) -> Call:
    x, weight, bias = random(rows, width), random(width), random(width)
    return lambda: norm(x, weight, bias)


def _gradient(norm: Callable[..., Any], rows: int, width: int, random: Random) -> Call:
    inputs = [random(*shape).requires_grad_() for shape in ((rows, width), (width,), (width,))]
    return backward(norm(*inputs), inputs, allow_unused=True)


def _layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    from torch.nn.functional import layer_norm

    return layer_norm(x, weight.shape, weight, bias)


def _rms_norm(x: Any, weight: Any, _: Any) -> Any:
    from torch.nn.functional import rms_norm

    return rms_norm(x, weight.shape, weight)
