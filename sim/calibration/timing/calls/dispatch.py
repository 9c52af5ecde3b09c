"""From a kernel's description to the torch call that executes it."""

from sim.calibration.timing.calls import attention, gemm, memory_bound
from sim.calibration.timing.clock import Call
from sim.model.kernels import Attention, Gemm, Kernel


def call(kernel: Kernel, device: str) -> Call:
    """One execution of a kernel on its own inputs. Raises `InputError` for an unknown kernel."""
    if isinstance(kernel, Gemm):
        return gemm.call(kernel, device)
    if isinstance(kernel, Attention):
        return attention.call(kernel, device)
    return memory_bound.call(kernel, device)
