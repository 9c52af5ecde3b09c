"""Slowdowns: kernels timed beside others are compared with the same kernels alone."""

import time
from dataclasses import dataclass, field

import pytest

from sim.calibration.timing.overlaps import TRIES, Threads, overlaps, slowdown


@dataclass
class Fake:
    """Calls of 1 ms that take `factor` times as long beside others, which last 0.1 ms each."""

    factor: float
    asked: list[int] = field(default_factory=list)
    enough: int = 0

    def alone(self, call: object, count: int) -> float:
        return count * (1e-3 if call == "kernel" else 1e-4)

    def beside(self, call: object, count: int, other: object, others: int) -> float | None:
        self.asked.append(others)
        return self.alone(call, count) * self.factor if others >= self.enough else None


def slowed(pair: Fake) -> float | None:
    return slowdown(pair, "kernel", "copy")  # type: ignore[arg-type]  # names stand for calls


def test_a_slowdown_is_the_time_beside_over_the_time_alone() -> None:
    pair = Fake(factor=1.3)
    assert slowed(pair) == pytest.approx(1.3)
    assert pair.asked == [600]  # twice as long as 30 kernels alone


def test_more_is_started_where_the_other_work_ended_first() -> None:
    pair = Fake(factor=1.3, enough=2000)
    assert slowed(pair) == pytest.approx(1.3)
    assert pair.asked == [600, 1200, 2400]


def test_two_that_never_meet_have_no_slowdown() -> None:
    pair = Fake(factor=1.3, enough=10**9)
    assert slowed(pair) is None
    assert len(pair.asked) == TRIES


def test_a_thread_works_while_calls_are_timed_and_ends_with_them() -> None:
    done: list[int] = []
    spent = Threads().beside(lambda: time.sleep(0.002), 5, lambda: done.append(time.sleep(1e-3)), 0)
    assert spent is not None
    assert spent >= 0.01
    assert done
    before = len(done)
    time.sleep(0.01)
    assert len(done) == before


def test_a_cpu_is_measured_beside_copies() -> None:
    pytest.importorskip("torch")
    found = list(overlaps("cpu"))
    assert [(one.kernel, one.beside) for one in found] == [("gemm", "copy"), ("stream", "copy")]
