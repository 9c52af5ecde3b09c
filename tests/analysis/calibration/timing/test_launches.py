"""Launches: the host's time, an empty kernel's round trip, a graph's node."""

import pytest

from sim.analysis.calibration.timing import launches
from sim.analysis.calibration.timing.launches import LAUNCHES, launch_costs


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
