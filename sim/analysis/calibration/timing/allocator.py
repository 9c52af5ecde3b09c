"""How this process's allocator treats freed memory on a CPU."""

import ctypes
from contextlib import suppress

# glibc's <malloc.h>.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
_NEVER = 2**31 - 1


def keep_freed() -> bool:
    """Tell glibc to keep freed memory instead of giving it back; False where that is impossible.

    By default every tensor above 32 MiB is mapped anew, and its pages are cleared and faulted in
    when they are first written, which takes many times as long as the kernel that writes them.
    With this setting memory is reused as torch's caching allocator reuses it on GPUs.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        return bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, _NEVER))
    return False
