"""Copies: every kind and size; what does not fit into memory is left out."""

from collections.abc import Sequence

import pytest

from sim.analysis.calibration.timing.clock import Call, HostClock, Timing
from sim.analysis.calibration.timing.launches import MIB, copies, copy_kinds


class SmallMemory:
    """A clock of a CPU whose memory holds copies of up to 1 MiB."""

    device = "cpu"

    def __init__(self) -> None:
        self.sizes = 0

    def time(self, calls: Sequence[Call]) -> Timing:
        self.sizes += 1
        if self.sizes > 2:
            raise RuntimeError("CUDA out of memory.\nTried to allocate 16 MiB")
        return Timing(1e-3, 0.0)


def test_a_gpu_has_page_locked_copies_in_both_directions_and_its_own() -> None:
    kinds = copy_kinds("cuda")
    assert len(kinds) == len(set(kinds)) == 5
    assert ("device to host", True) in kinds
    assert ("device to device", True) not in kinds


def test_copies_that_do_not_fit_are_left_out() -> None:
    pytest.importorskip("torch")
    notes: list[str] = []
    measured = list(copies(SmallMemory(), (1024, MIB, 16 * MIB, 64 * MIB), notes.append))
    assert [copy.bytes for copy in measured] == [1024.0, MIB]
    assert notes == ["left out a copy device to device of 16,777,216 B: CUDA out of memory."]


def test_a_cpu_copies() -> None:
    pytest.importorskip("torch")
    (copy,) = copies(HostClock(), (MIB,))
    assert (copy.kind, copy.pinned, copy.bytes) == ("device to device", False, MIB)
    assert copy.bandwidth > 0
