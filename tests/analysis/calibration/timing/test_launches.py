"""Launches: the host's time, an empty kernel's round trip, a graph's node."""

from collections.abc import Sequence

import pytest

from sim.analysis.calibration.timing import launches
from sim.analysis.calibration.timing.clock import Call, HostClock, Timing
from sim.analysis.calibration.timing.launches import LAUNCHES, MIB, copies, copy_kinds, launch_costs


class FakeMachine:
    """A host that issues in 5 us and a device that works 2 us a kernel, on one made-up clock."""

    def __init__(self) -> None:
        self.now = self.busy = 0.0

    def kernel(self) -> None:
        self.now += 5e-6
        self.busy = max(self.busy, self.now) + 2e-6

    def replay(self) -> None:
        self.now += 5e-6
        self.busy = max(self.busy, self.now) + LAUNCHES * 1e-6

    def wait(self) -> None:
        self.now = max(self.now, self.busy)


def test_the_three_costs_are_separated(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = FakeMachine()
    monkeypatch.setattr(launches.time, "perf_counter", lambda: machine.now)
    host = launch_costs(machine.kernel, machine.wait, machine.replay)
    assert host.issue == pytest.approx(5e-6)
    assert host.latency == pytest.approx(7e-6)
    assert host.node == pytest.approx(1e-6, rel=0.02)


def test_without_graphs_a_node_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = FakeMachine()
    monkeypatch.setattr(launches.time, "perf_counter", lambda: machine.now)
    assert launch_costs(machine.kernel, machine.wait, None).node == 0.0


def test_a_cpu_issues_and_executes_at_once() -> None:
    pytest.importorskip("torch")
    host = launches.launches("cpu")
    assert 0 < host.issue < 1e-2
    assert host.node == 0.0


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
