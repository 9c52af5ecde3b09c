"""torch's SyncBatchNorm, whose CUDA operators have no shapes for fake tensors.

Its statistics are fp32 a channel (aten/src/ATen/native/cuda/Normalization.cu); ranks tell one
another how many elements they have, and those of none are left out by a mask, for which the host
waits (torch/nn/modules/_functions.py). Here every rank has some.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from sim.jobs.capturing.patches import Patches


def install(torch: Any, patches: Patches, wait: Callable[[], None]) -> None:
    """Give the operators shapes, and the module a host that waits."""
    library = torch.library.Library("aten", "IMPL", "Meta")
    patches.also(library._destroy)
    for name, shaped in _shapes(torch).items():
        library.impl(name, shaped)
    function = import_module("torch.nn.modules._functions").SyncBatchNorm
    forward = function.forward

    def waited(*args: Any) -> Any:
        wait()
        with _unmasked(torch):
            return forward(*args)

    patches.set(function, "forward", staticmethod(waited))


@contextmanager
def _unmasked(torch: Any) -> Iterator[None]:
    """Where a graph is captured torch does not look at the mask."""
    usual = torch.cuda.is_current_stream_capturing
    torch.cuda.is_current_stream_capturing = lambda: True
    try:
        yield
    finally:
        torch.cuda.is_current_stream_capturing = usual


def _shapes(torch: Any) -> dict[str, Callable[..., Any]]:
    """What the operators give, by the input, whose second dimension is that of channels."""

    def channels(one: Any, number: int) -> tuple[Any, ...]:
        return tuple(one.new_empty(one.shape[1], dtype=torch.float32) for _ in range(number))

    return {
        "batch_norm_stats": lambda one, eps: channels(one, 2),
        "batch_norm_gather_stats_with_counts": lambda one, *_: channels(one, 2),
        "batch_norm_elemt": lambda one, *_: torch.empty_like(one),
        "batch_norm_backward_reduce": lambda grad, *_: channels(grad, 4),
        "batch_norm_backward_elemt": lambda grad, *_: torch.empty_like(grad),
    }
