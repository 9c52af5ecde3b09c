"""Random tensors and backward passes for the calls that are timed."""

from collections.abc import Callable, Sequence
from typing import Any

from sim.analysis.calibration.timing.clock import Call

Random = Callable[..., Any]  # makes a tensor of normal numbers from a shape

DTYPES = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}


def dtype_of(precision: str) -> Any:
    """Return torch's type of a precision's numbers."""
    import torch

    return getattr(torch, DTYPES[precision])


def random_tensors(device: str, precision: str) -> Random:
    """Return a maker of normal random tensors; zeros would draw less power than training does."""
    import torch

    dtype = dtype_of(precision)
    return lambda *shape: torch.randn(*shape, device=device, dtype=dtype)


def backward(output: Any, inputs: Sequence[Any], **options: Any) -> Call:
    """Return the backward pass from `output` to `inputs` as a call that can be repeated."""
    import torch

    gradient = torch.randn_like(output)
    return lambda: torch.autograd.grad(output, inputs, gradient, retain_graph=True, **options)
