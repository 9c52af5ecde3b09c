"""Copies: every way and size; what does not fit is left out."""

from collections.abc import Sequence

import pytest

from sim.calibration.timing.clock import Call, HostClock, Timing
from sim.calibration.timing.copies import MIB, copies, ways


class Small:
    """A CPU whose memory holds copies of up to 1 MiB."""

    device = "cpu"

    def __init__(self) -> None:
        self.sizes = 0

    def time(self, calls: Sequence[Call]) -> Timing:
        self.sizes += 1
        if self.sizes > 2:
            raise RuntimeError("CUDA out of memory.\nTried to allocate 16 MiB")
        return Timing(1e-3, 0.0)


def test_a_gpu_has_page_locked_copies_both_ways_and_its_own() -> None:
    found = ways("cuda")
    assert len(found) == len(set(found)) == 5
    assert ("device to host", True) in found
    assert ("device to device", True) not in found


def test_copies_that_do_not_fit_are_left_out() -> None:
    pytest.importorskip("torch")
    said: list[str] = []
    found = list(copies(Small(), (1024, MIB, 16 * MIB, 64 * MIB), said.append))
    assert [one.bytes for one in found] == [1024.0, MIB]
    assert said == ["left out a copy device to device of 16,777,216 B: CUDA out of memory."]


def test_a_cpu_copies() -> None:
    pytest.importorskip("torch")
    (one,) = copies(HostClock(), (MIB,))
    assert (one.kind, one.pinned, one.bytes) == ("device to device", False, MIB)
    assert one.bandwidth > 0
