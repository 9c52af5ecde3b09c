"""Checks that torch is installed and has the device, and a setting of the host's allocator."""

import ctypes
from contextlib import suppress

from sim.config.errors import InputError
from sim.config.optional import needed


def require(device: str, command: str = "sim calibrate") -> None:
    """Raise `InputError` unless torch is installed and has the device."""
    torch = needed("torch", command, "calibrate")
    if device == "cuda" and not torch.cuda.is_available():
        fault = "torch sees no CUDA device"
        raise InputError("--device cuda", fault, "check nvidia-smi, or take --device cpu")


# glibc's <malloc.h>.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
_NEVER = 2**31 - 1


def keep_freed() -> bool:
    """Tell glibc to keep freed memory instead of giving it back; False where this is impossible.

    By default, every tensor above 32 MiB is mapped anew. Its pages are cleared and faulted in when
    they are first written, which takes many times as long as the kernel that writes them. With this
    setting, memory is reused as torch's caching allocator reuses it on GPUs.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        return bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, _NEVER))
    return False
