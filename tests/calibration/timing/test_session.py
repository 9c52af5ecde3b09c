"""A session: what was measured is kept, what cannot be is left out and said so."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from sim.calibration.timing.clock import Call, Timing, summary
from sim.calibration.timing.session import calibrate
from sim.calibration.timing.suite import Case
from sim.cli.main import main
from sim.config.errors import InputError
from sim.model.kernels import Gemm, Kernel

CASES = [Case(kernel=Gemm(name="forward", m=m, n=8, k=8, precision="fp32")) for m in (8, 16, 32)]


class Clock:
    """Times the calls that it is given, in order, at what a list says."""

    device = "cpu"

    def __init__(self, *answers: float | BaseException) -> None:
        self.answers = list(answers)

    def time(self, calls: Sequence[Call]) -> Timing:
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return Timing(answer, 0.0)


def made(kernel: Kernel, device: str) -> Call:
    return lambda: None


def sizes(found: Sequence[object]) -> list[int]:
    return [one.kernel.m for one in found]  # type: ignore[attr-defined]


def test_a_second_session_goes_on_where_the_first_stopped(tmp_path: Path) -> None:
    store = tmp_path / "part.csv"
    with pytest.raises(KeyboardInterrupt):
        calibrate(CASES, Clock(1e-3, KeyboardInterrupt()), store=store, make=made)
    found = calibrate(CASES, Clock(2e-3, 3e-3), store=store, make=made)
    assert sizes(found) == [8, 16, 32]
    assert [one.seconds for one in found] == [1e-3, 2e-3, 3e-3]


def test_a_shape_without_room_is_left_out_and_named(tmp_path: Path) -> None:
    said: list[str] = []
    full = RuntimeError("CUDA out of memory.\nTried to allocate 80 GiB")
    found = calibrate(
        CASES, Clock(1e-3, full, 3e-3), store=tmp_path / "p.csv", note=said.append, make=made
    )
    assert sizes(found) == [8, 32]
    assert said == ["left out fp32 product forward 16 x 8 x 8: CUDA out of memory."]


@pytest.mark.parametrize("time", [float("nan"), 0.0, float("inf")])
def test_a_time_that_is_none_is_left_out_and_what_was_measured_kept(
    tmp_path: Path, time: float
) -> None:
    said: list[str] = []
    store = tmp_path / "part.csv"
    found = calibrate(CASES, Clock(1e-3, time, 3e-3), store=store, note=said.append, make=made)
    assert sizes(found) == [8, 32]
    (line,) = said
    assert line.startswith("left out fp32 product forward 16 x 8 x 8: its time came out as")
    assert len(store.read_text().splitlines()) == 3


def test_a_store_that_was_cut_short_is_one_line(tmp_path: Path) -> None:
    store = tmp_path / "part.csv"
    calibrate(CASES, Clock(1e-3, 2e-3, 3e-3), store=store, make=made)
    store.write_text(store.read_text()[:-25])
    with pytest.raises(InputError, match=r"part.csv, line 4: is not a measured kernel"):
        calibrate(CASES, Clock(1e-3), store=store, make=made)


def test_without_a_gpu_a_line_says_so(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is one")
    out = tmp_path / "mine.toml"
    found = CliRunner().invoke(
        main, ["calibrate", "kernels", "--device", "cuda", "--out", str(out)]
    )
    assert found.exit_code == 2
    assert found.output.startswith("error: --device cuda: torch sees no CUDA device; ")
    assert not out.exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('format = 2\ndevice = "cpu"\nmeasurements = "p.csv"\n', "newer than this program reads"),
        ('device = "cpu"\nmeasurements = "nowhere.csv"\n', "nowhere.csv cannot be read"),
        ('device = "cpu"\nmeasurements = "p.csv"\n', "line 2: is not a measured kernel"),
    ],
)
def test_a_profile_that_cannot_be_used_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "p.toml").write_text(text)
    (tmp_path / "p.csv").write_text("kernel,name,bytes,seconds\nstream,ge")
    found = CliRunner().invoke(main, ["show", str(tmp_path / "p.toml")])
    assert found.exit_code == 2
    assert said in found.output
    assert found.output.count("\n") == 1


def test_the_middle_of_timings_and_their_spread() -> None:
    assert summary([4.0, 1.0, 2.0, 3.0, 100.0]).seconds == 3.0
    assert summary([2.0, 2.0, 2.0]).spread == 0.0
