"""Linux system calls that the testbed needs and Python 3.11 lacks."""

import array
import ctypes
import fcntl
import os
import signal
import socket
import struct

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


def switch_offloads_off(device: str) -> None:
    """Every packet is one packet: no segmentation or coalescing beside the shaper."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for command in _OFFLOADS.values():
            value = array.array("I", [command, 0])
            request = struct.pack("16sP", device.encode(), value.buffer_info()[0])
            fcntl.ioctl(control, _SIOCETHTOOL, request)
