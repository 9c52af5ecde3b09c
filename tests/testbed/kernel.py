"""What the testbed needs of Linux: system calls that Python 3.11 lacks, idle and stolen time."""

import array
import ctypes
import fcntl
import os
import signal
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NETWORK, COMPUTE = 10, 5  # real-time priorities
_CLONE_NEWNET = 0x40000000
_PR_SET_PDEATHSIG, _PR_SET_TIMERSLACK = 1, 29
_SIOCETHTOOL = 0x8946
_OFFLOADS = {"tso": 0x1F, "gso": 0x24, "gro": 0x2C}  # ETHTOOL_STSO, SGSO, SGRO

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def enter_new_network() -> None:
    """Move to a new network namespace, which ends with the last process in it."""
    _checked(_libc.unshare(_CLONE_NEWNET), "unshare")


def die_with_parent() -> None:
    """No process of the testbed outlives the tests, even if they are killed."""
    _checked(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")


def sleep_precisely() -> None:
    """Wake with a nanosecond of slack instead of the usual 50 us."""
    _checked(_libc.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0), "prctl")


def run_first(priority: int = NETWORK) -> None:
    """Run ahead of all ordinary processes (SCHED_FIFO); later threads inherit the priority."""
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))


@contextmanager
def processors_awake() -> Iterator[None]:
    """Keep idle processors polling (docs.kernel.org/power/pm_qos_interface.html). A hypervisor
    gives a processor that halts away, and gives it back late, at each message that wakes it."""
    device = Path("/dev/cpu_dma_latency")
    if not device.exists():
        yield
        return
    with device.open("wb", buffering=0) as requests:
        requests.write(struct.pack("i", 0))  # microseconds; holds until the file is closed
        yield


def processor_time() -> tuple[int, int]:
    """Ticks since the machine started, of all processors together: those that a hypervisor stole,
    and all."""
    ticks = [int(field) for field in Path("/proc/stat").read_text().split()[1:9]]
    return ticks[7], sum(ticks)


def switch_offloads_off(device: str) -> None:
    """Every packet is one packet: no segmentation or coalescing beside the shaper."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for command in _OFFLOADS.values():
            value = array.array("I", [command, 0])
            request = struct.pack("16sP", device.encode(), value.buffer_info()[0])
            fcntl.ioctl(control, _SIOCETHTOOL, request)
