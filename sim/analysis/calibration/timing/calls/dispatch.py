"""From a kernel's description to the torch call that executes it."""

from typing import Any

from sim.analysis.calibration.timing.calls import attention, gemm, memory_bound
from sim.analysis.calibration.timing.clock import Call
from sim.model.kernels import Attention, Gemm, Kernel, Precision


def call(kernel: Kernel, device: str) -> Call:
    """Return a call that runs a kernel once. Raises `InputError` for an unknown kernel."""
    if isinstance(kernel, Gemm):
        return _rounded(gemm.call(kernel, device), kernel.precision)
    if isinstance(kernel, Attention):
        return _rounded(attention.call(kernel, device), kernel.precision)
    return memory_bound.call(kernel, device)


def _rounded(run: Call, precision: Precision) -> Call:
    """Return the call with torch's TF32 switch on for tf32 and off for fp32; products of fp32
    operands use TF32 only if it is on."""
    if precision not in ("fp32", "tf32"):
        return run
    import torch

    matmul: Any = torch.backends.cuda.matmul

    def work() -> Any:
        before, matmul.allow_tf32 = matmul.allow_tf32, precision == "tf32"
        try:
            return run()
        finally:
            matmul.allow_tf32 = before

    return work
