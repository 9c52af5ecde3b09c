"""Slowdowns: kernels timed beside other work are compared with the same kernels alone."""

import threading
from dataclasses import dataclass, field

import pytest

from sim.analysis.calibration.timing import interference
from sim.analysis.calibration.timing.interference import TRIES, Threads, slowdown, slowdowns


@dataclass
class FakeConcurrency:
    """Calls of 1 ms that take `factor` times as long beside other calls of 0.1 ms each; at least
    `enough` of those are needed to outlast them."""

    factor: float
    enough: int = 0
    started: list[int] = field(default_factory=list)

    def alone(self, call: object, count: int) -> float:
        return count * (1e-3 if call == "kernel" else 1e-4)

    def beside(self, call: object, count: int, other: object, others: int) -> float | None:
        self.started.append(others)
        return self.alone(call, count) * self.factor if others >= self.enough else None


def measured(concurrency: FakeConcurrency) -> float | None:
    return slowdown(concurrency, "kernel", "copy")  # type: ignore[arg-type]  # names for calls


def test_a_slowdown_is_the_time_beside_over_the_time_alone() -> None:
    concurrency = FakeConcurrency(factor=1.3)
    assert measured(concurrency) == pytest.approx(1.3)
    assert concurrency.started == [600]  # twice as long as 30 kernels alone


def test_more_is_started_if_the_other_work_ended_first() -> None:
    concurrency = FakeConcurrency(factor=1.3, enough=2000)
    assert measured(concurrency) == pytest.approx(1.3)
    assert concurrency.started == [600, 1200, 2400]


def test_calls_that_never_overlap_have_no_slowdown() -> None:
    concurrency = FakeConcurrency(factor=1.3, enough=10**9)
    assert measured(concurrency) is None
    assert len(concurrency.started) == TRIES


def test_a_thread_works_while_calls_are_timed_and_ends_with_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each timed call waits until the other work has been done once more."""
    now, done = [0.0], threading.Semaphore(0)
    monkeypatch.setattr(interference.time, "perf_counter", lambda: now[0])

    def timed_call() -> None:
        done.acquire()
        now[0] += 2e-3

    before = threading.active_count()
    assert Threads().beside(timed_call, 5, done.release, 0) == pytest.approx(0.01)
    assert threading.active_count() == before


def test_a_cpu_is_measured_beside_copies() -> None:
    pytest.importorskip("torch")
    pairs = [(slowed.kernel, slowed.beside) for slowed in slowdowns("cpu")]
    assert pairs == [("gemm", "copy"), ("stream", "copy")]
