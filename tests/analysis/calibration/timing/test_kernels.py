"""Timing a suite: what was measured is kept, what cannot be measured is left out and reported."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from sim.analysis.calibration.timing.clock import Call, Timing, summary
from sim.analysis.calibration.timing.kernel_suite import KernelCase, kernel_cases
from sim.analysis.calibration.timing.kernels import time_kernels
from sim.hardware.kernels.measurements import Measurement
from sim.interface.cli.main import main
from sim.model.kernels import Gemm, Kernel

CASES = [
    KernelCase(kernel=Gemm(name="forward", m=m, n=8, k=8, precision="fp32")) for m in (8, 16, 32)
]


class FakeClock:
    """Answers with the times, or raises the errors, of a list."""

    device = "cpu"

    def __init__(self, *answers: float | BaseException) -> None:
        self.answers = list(answers)

    def time(self, calls: Sequence[Call]) -> Timing:
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return Timing(answer, 0.0)


def no_call(kernel: Kernel, device: str) -> Call:
    return lambda: None


def sizes(measurements: Sequence[Measurement]) -> list[int]:
    return [m.kernel.m for m in measurements if isinstance(m.kernel, Gemm)]


def test_a_second_call_resumes_where_the_first_stopped(tmp_path: Path) -> None:
    store = tmp_path / "part.csv"
    with pytest.raises(KeyboardInterrupt):
        time_kernels(CASES, FakeClock(1e-3, KeyboardInterrupt()), store=store, make=no_call)
    measured = time_kernels(CASES, FakeClock(2e-3, 3e-3), store=store, make=no_call)
    assert sizes(measured) == [8, 16, 32]
    assert [measurement.seconds for measurement in measured] == [1e-3, 2e-3, 3e-3]


def test_a_shape_that_does_not_fit_is_left_out_and_named(tmp_path: Path) -> None:
    notes: list[str] = []
    full = RuntimeError("CUDA out of memory.\nTried to allocate 80 GiB")
    measured = time_kernels(
        CASES,
        FakeClock(1e-3, full, 3e-3),
        store=tmp_path / "p.csv",
        note=notes.append,
        make=no_call,
    )
    assert sizes(measured) == [8, 32]
    assert notes == ["left out fp32 product forward 16 x 8 x 8: CUDA out of memory."]


@pytest.mark.parametrize("time", [float("nan"), 0.0, float("inf")])
def test_an_invalid_time_is_left_out_and_what_was_measured_kept(
    tmp_path: Path, time: float
) -> None:
    notes: list[str] = []
    store = tmp_path / "part.csv"
    measured = time_kernels(
        CASES, FakeClock(1e-3, time, 3e-3), store=store, note=notes.append, make=no_call
    )
    assert sizes(measured) == [8, 32]
    (line,) = notes
    assert line.startswith("left out fp32 product forward 16 x 8 x 8: its time came out as")
    assert len(store.read_text().splitlines()) == 3


def test_without_a_gpu_a_line_says_so(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is one")
    out = tmp_path / "mine.toml"
    result = CliRunner().invoke(
        main, ["calibrate", "kernels", "--device", "cuda", "--out", str(out)]
    )
    assert result.exit_code == 2
    assert result.output.startswith("error: --device cuda: torch sees no CUDA device; ")
    assert not out.exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('format = 2\ndevice = "cpu"\nmeasurements = "p.csv"\n', "newer than this program reads"),
        ('device = "cpu"\nmeasurements = "nowhere.csv"\n', "nowhere.csv is not beside it"),
        ('device = "cpu"\nmeasurements = "p.csv"\n', "line 2: is cut short"),
    ],
)
def test_a_profile_that_cannot_be_used_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "p.toml").write_text(text)
    (tmp_path / "p.csv").write_text("kernel,name,bytes,seconds\nstream,ge")
    result = CliRunner().invoke(main, ["show", str(tmp_path / "p.toml")])
    assert result.exit_code == 2
    assert message in result.output
    assert result.output.count("\n") == 1


def test_the_optimizer_is_timed_up_to_what_a_rank_updates_at_once() -> None:
    for name in ("adam", "adam for-each"):
        sizes = [c.kernel.bytes for c in kernel_cases("cuda") if c.kernel.name == name]
        assert max(sizes) == pytest.approx(4 * 2**30, rel=1e-4)


def test_the_middle_of_timings_and_their_spread() -> None:
    assert summary([4.0, 1.0, 2.0, 3.0, 100.0]).seconds == 3.0
    assert summary([2.0, 2.0, 2.0]).spread == 0.0


@pytest.mark.parametrize("cut", [1, 20, None])
def test_a_row_torn_by_a_kill_is_measured_again_and_the_table_stays_whole(
    tmp_path: Path, cut: int | None
) -> None:
    store = tmp_path / "mine.part.csv"
    first = time_kernels(CASES, FakeClock(1e-3, 2e-3, 3e-3), store=store, make=no_call)
    text = store.read_text()
    store.write_text("" if cut is None else text[:-cut])
    for answers in ((1e-3, 2e-3, 3e-3), ()):
        again = time_kernels(CASES, FakeClock(*answers), store=store, make=no_call)
        assert sizes(again) == sizes(first)
        assert len(store.read_text().splitlines()) == len(text.splitlines())
        assert store.read_text().startswith("kernel,")
