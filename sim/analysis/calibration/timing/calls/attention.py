"""Fused attention as torch executes it, by backend."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from sim.analysis.calibration.timing.calls.tensors import backward, random_tensors
from sim.analysis.calibration.timing.clock import Call
from sim.model.kernels import Attention

# Names of torch's backends, by the generation of fused attention as devices and stacks name it.
BACKENDS = {
    "flash2": "FLASH_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
    "memory-efficient": "EFFICIENT_ATTENTION",
    "math": "MATH",
}


def call(kernel: Attention, device: str) -> Call:
    """Return a call of torch's scaled_dot_product_attention with the backend that the kernel's name
    selects. If the kernel is a backward pass, only this pass is called."""
    from torch.nn.functional import scaled_dot_product_attention

    random = random_tensors(device, kernel.precision)
    q = random(kernel.batch, kernel.heads, kernel.q, kernel.head)
    k = random(kernel.batch, kernel.kv_heads, kernel.kv, kernel.head)
    v = random(kernel.batch, kernel.kv_heads, kernel.kv, kernel.head)
    for operand in (q, k, v):
        operand.requires_grad_(kernel.backward)
    options: Any = {"is_causal": kernel.causal, "enable_gqa": kernel.kv_heads < kernel.heads}
    backend = _backend(kernel.name)

    def forward() -> Any:
        with backend():
            return scaled_dot_product_attention(q, k, v, **options)

    return backward(forward(), (q, k, v)) if kernel.backward else forward


def _backend(generation: str) -> Callable[[], Any]:
    """Return a context in which torch uses only the backend of this generation; an empty context
    for unknown names."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    name = BACKENDS.get(generation)
    return nullcontext if name is None else lambda: sdpa_kernel(getattr(SDPBackend, name))
