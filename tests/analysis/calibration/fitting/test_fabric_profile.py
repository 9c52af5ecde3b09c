"""A fabric's profile that was written is a backend with the fitted constants."""

from math import nan
from pathlib import Path

import pytest
from click.testing import CliRunner

from sim.analysis.calibration.fitting.fabric_profile import (
    measured,
    profiled,
    shared_devices,
)
from sim.collectives.interconnect import CollectiveCall, Interconnect
from sim.collectives.libraries import backend, profile
from sim.collectives.libraries.gloo import Gloo
from sim.collectives.libraries.nccl import Nccl
from sim.collectives.schedule import GroupShape
from sim.config.errors import InputError
from sim.interface.cli.main import main
from sim.interface.document import terminal
from sim.interface.views.fabric import judged
from sim.jobs.traces.operation_times import OperationTime, read

pytest.importorskip("scipy")
pytest.importorskip("tomli_w")

READINGS = [
    OperationTime(operation="reduce", seconds=1e-4 + 2.0**k / 1e9, ranks=2, bytes=2.0**k, sigma=nan)
    for k in range(3, 24)
]


def test_a_profile_that_was_written_is_read_as_it_was_fitted(tmp_path: Path) -> None:
    out = tmp_path / "here.toml"
    fitted = profiled("gloo", READINGS, out, None, {"torch": "2.13"})
    written, library = profile.find(str(out)), backend.load(str(out))
    assert written is not None
    assert written.provenance == {"torch": "2.13", "samples": 21}
    assert written.residuals[0].median == pytest.approx(fitted.residuals[0].median, abs=1e-4)
    assert written.residuals[0].most == 2.0**23
    assert len(read(tmp_path / written.measurements)) == 21
    assert isinstance(library, Gloo)
    host = Interconnect(generation="cpu", gpus_per_node=2, port_bandwidth=1e12)
    call = CollectiveCall("reduce", 2.0**22, GroupShape(ranks=2), host)
    assert call.duration(library.call_cost(call)) == pytest.approx(READINGS[19].seconds, rel=0.05)
    assert "reduce among 2" in terminal.text(judged(fitted.residuals))


def test_a_profile_is_shown_with_its_errors_and_a_picture(tmp_path: Path) -> None:
    out = tmp_path / "here.toml"
    profiled("gloo", READINGS, out, None, {"torch": "2.13"})
    picture = tmp_path / "here.png"
    result = CliRunner().invoke(main, ["show", str(out), "--picture", str(picture)])
    assert result.exit_code == 0, result.output
    assert "pace.reduce.message  50.02 us" in result.stdout
    assert "reduce among 2" in result.stdout
    assert picture.stat().st_size > 10_000
    assert [collective.time for collective in measured(str(out))] == pytest.approx(
        [reading.seconds for reading in READINGS], rel=1e-5
    )


def test_nccls_profile_remembers_the_cluster_that_it_was_measured_on(tmp_path: Path) -> None:
    out = tmp_path / "dgx.toml"
    readings = [
        OperationTime(operation="all_reduce", seconds=2e-5 + 2.0**k / 1e11, ranks=8, bytes=2.0**k)
        for k in range(3, 24)
    ]
    fitted = profiled("nccl", readings, out, "dgx-a100-hdr", {})
    assert fitted.provenance["topology"] == "dgx-a100-hdr"
    assert set(fitted.constants) == {"node"}
    assert measured(str(out))[0].interconnect.generation == "ampere"
    assert isinstance(backend.load(str(out)), Nccl)


def test_what_ranks_on_one_gpu_took_is_kept_and_changes_no_constant(tmp_path: Path) -> None:
    out = tmp_path / "one-gpu.toml"
    fitted = profiled("nccl", READINGS, out, None, shared_devices("nccl", 2, devices=1))
    assert (fitted.constants, fitted.residuals) == ({}, ())
    assert len(read(tmp_path / "one-gpu.csv")) == 21
    library, usual = backend.load(str(out)), backend.load("nccl")
    assert isinstance(library, Nccl)
    assert isinstance(usual, Nccl)
    assert library.constants == usual.constants


def test_a_profile_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "here.toml").write_text("format = 2\nbackend = 'gloo'\nmeasurements = ''")
    result = CliRunner().invoke(main, ["show", str(tmp_path / "here.toml")])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "format = 2 is newer than this program reads (1)" in result.stderr


def test_a_table_of_readings_that_was_cut_is_one_line(tmp_path: Path) -> None:
    out = tmp_path / "here.toml"
    profiled("gloo", READINGS, out, None, {})
    lines = (tmp_path / "here.csv").read_text().splitlines(keepends=True)
    (tmp_path / "here.csv").write_text("".join(lines[:-1]))
    with pytest.raises(InputError, match=r"samples = 21, but the readings in here.csv have 20"):
        measured(str(out))


def test_nothing_is_written_where_nothing_can_be_fitted(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        profiled("gloo", READINGS[:3], tmp_path / "here.toml", None, {})
    assert list(tmp_path.iterdir()) == []
