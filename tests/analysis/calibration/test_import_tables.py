"""`sim calibrate import` of tables: kernels and collectives that others measured."""

from pathlib import Path
from statistics import median

import pytest

from sim.hardware import device as devices
from sim.hardware.kernels import profile as profiles
from sim.hardware.kernels.calibrated import Calibrated
from sim.hardware.kernels.measurements import KernelClass, Measurement, class_of
from sim.hardware.kernels.residuals import device_of
from sim.hardware.kernels.shape_classes import LONG
from sim.hardware.kernels.time import kernel_time
from sim.interface.formats import collective_tables
from sim.model.kernels import Gemm
from tests.analysis.calibration.test_import import imported

VIDUR = ("vidur-a40", "vidur-a100", "vidur-h100")
HEAD = "device,model,op,m,n,k,min_bytes,median_ms\n"


def products(device: str = "a40") -> str:
    """Products of 100 TFLOP/s, each in two rows, the second twice as slow."""
    shapes = [(128 << i, 1024, 512 << j) for i in range(5) for j in range(3)]
    return "".join(
        f"{device},x,up,{m},{n},{k},,{factor * 2e-11 * m * n * k}\n"
        for m, n, k in shapes
        for factor in (1, 3)
    )


def sums(device: str = "a40") -> str:
    return "".join(f"{device},x,add,,,,{10**i},{10 ** (i - 8)}\n" for i in range(4, 10))


def test_a_table_of_kernels_becomes_the_profile_of_its_device(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    pytest.importorskip("tomli_w")
    (tmp_path / "t.csv").write_text(HEAD + products() + sums() + products("a100"))
    out = tmp_path / "mine.toml"
    options = ("--as", "a40-48gb-pcie", "--rows", "device=a40", "--kind", "add=stream")
    result = imported(tmp_path / "t.csv", *options, "--note", "licence=MIT", "--out", out)
    assert result.exit_code == 0, result.output
    written = profiles.load(str(out))
    assert written.origin.provenance == {"licence": "MIT", "files": "t.csv", "samples": 15 + 6}
    times = {m.kernel: m for m in written.measurements if isinstance(m.kernel, Gemm)}
    assert sum(m.kept_out for m in times.values()) == 3, "one in five"
    smallest = times[Gemm(name="forward", m=128, n=1024, k=512, precision="fp16")]
    assert smallest.seconds == pytest.approx(4e-14 * 128 * 1024 * 512, rel=1e-4), "of both rows"
    others = written.measurements[len(times) :]
    assert {measured.kernel.name for measured in others} == {"stream"}


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (HEAD + products(), ("--rows", "gpu=a40"), "t.csv, line 2: has no column 'gpu'"),
        (HEAD + products(), ("--rows", "device=b7"), "t.csv: has no row of device=b7"),
        (HEAD + products(), ("--rows", "device!=a40"), "t.csv: has no row of device!=a40"),
        (HEAD + products(), ("--rows", "a40"), "--rows: 'a40' is not KEY=VALUE"),
        (HEAD + products(), ("--precision", "fp7"), "t.csv, line 2: no precision 'fp7'"),
        (HEAD + products() + sums()[:-3], (), "t.csv, line 37: is cut short"),
        (HEAD + products()[:-30], (), "t.csv, line 31: is cut short"),
        (HEAD + "a40,x,up,8,8,8,,-1\n", (), 't.csv, line 2: median_ms = "-1" is not positive'),
        (HEAD + "a40,x,up,8,8,8,,\n", (), "t.csv, line 2: has no time"),
        (HEAD + "a40,x,rope,8,,,,0.1\n", (), "holds no kernels with their sizes"),
    ],
)
def test_a_table_that_cannot_be_used_is_one_line(
    tmp_path: Path, text: str, options: tuple[str, ...], message: str
) -> None:
    (tmp_path / "t.csv").write_text(text)
    out = tmp_path / "mine.toml"
    result = imported(tmp_path / "t.csv", "--as", "a40-48gb-pcie", *options, "--out", out)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert message in result.stderr
    assert not out.exists()


def test_kernels_need_a_device_that_is_known_and_a_profile_to_write(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(HEAD + products())
    assert "a40-48" in imported(tmp_path / "t.csv", "--as", "a40-48", "--out", "x.toml").stderr
    refused = imported(tmp_path / "t.csv", "--as", "a40-48gb-pcie")
    assert (refused.exit_code, "--out: kernels become a profile" in refused.stderr) == (2, True)


@pytest.mark.parametrize(
    ("heading", "row"),
    [
        ("collective,gpus,nodes,size_bytes,ip_time_us", "all_reduce,16,2,4096,20"),
        ("collective,workers,devices_per_node,size_bytes,median_ms", "all_reduce,16,8,4096,0.02"),
        # nccl-tests, PERFORMANCE.md: an all-reduce passes 2 (n - 1) / n of its bytes over the bus.
        ("collective,gpus,nodes,bytes,busbw_GBs", "all_reduce,16,2,4096,0.384"),
        # Trays of four in domains of eight.
        ("collective,gpus,nodes,network,bytes,time_us", "all_reduce,16,4,NVL8 + IB,4096,20"),
    ],
)
def test_a_table_of_collectives_is_read_by_its_columns(
    tmp_path: Path, heading: str, row: str
) -> None:
    (tmp_path / "t.csv").write_text(f"{heading}\n{row}\n")
    (reading,) = collective_tables.read(tmp_path / "t.csv", {})
    assert reading.operation == "all_reduce"
    assert (reading.ranks, reading.nodes, reading.bytes) == (16, 2, 4096.0)
    assert reading.seconds == pytest.approx(2e-5)


def test_a_row_of_deepep_is_a_dispatch_and_a_combine(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "device,node_num,hidden_size,num_token,num_topk,num_experts,dispatch_sms,"
        "dispatch_transmit_us,dispatch_notify_us,combine_sms,combine_transmit_us,combine_notify_us\n"
        "NVIDIA H100 80GB HBM3,2,1024,100,8,256,20,150,50,20,300,0.0\n"
    )
    there, back = collective_tables.read(tmp_path / "t.csv", {})
    assert (there.ranks, there.nodes, there.seconds) == (16, 2, pytest.approx(2e-4))
    assert (there.bytes, back.bytes, back.seconds) == (105600.0, 204800.0, pytest.approx(3e-4))
    assert there.routed is not None
    assert back.routed is not None
    assert (there.routed.item, there.routed.summed, back.routed.summed) == (1056.0, False, True)


def test_a_collective_that_nothing_names_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("gpus,size_bytes,time_us\n8,4096,20\n")
    result = imported(tmp_path / "t.csv")
    assert result.exit_code == 2
    assert "t.csv, line 2: has no collective" in result.stderr
    assert imported(tmp_path / "t.csv", "--rows", "gpus=8").stderr.count("\n") == 1


def long_kept_out(name: str, kind: KernelClass) -> list[Measurement]:
    measured = profiles.load(name).measurements
    return [m for m in measured if m.kept_out and m.seconds > LONG and class_of(m.kernel) == kind]


@pytest.mark.parametrize("name", VIDUR)
@pytest.mark.parametrize(("kind", "middle", "most"), [("gemm", 0.06, 0.2), ("stream", 0.08, 0.3)])
def test_packaged_profiles_predict_kernels_above_20_us_that_were_kept_out(
    name: str, kind: KernelClass, middle: float, most: float
) -> None:
    profile = profiles.load(name)
    device = device_of(profile)
    predict = Calibrated(profile, lambda kernel: kernel_time(kernel, device, ("flash2",)))
    errors = []
    for measured in long_kept_out(name, kind):
        predicted = predict(measured.kernel)
        assert predicted is not None
        errors.append(abs(predicted.seconds / measured.seconds - 1))
    errors.sort()
    assert median(errors) < middle
    assert errors[round(0.95 * (len(errors) - 1))] < most


@pytest.mark.parametrize("name", VIDUR)
def test_packaged_devices_agree_with_measured_products_that_were_kept_out(name: str) -> None:
    """The constants of the device's own file. The source timed blocks of some ten milliseconds:
    short products lie between the full clock and the held clock, long products run at the latter.
    """
    held = devices.load(profiles.load(name).origin.device)
    kept_out = long_kept_out(name, "gemm")
    slow, fast = (
        [kernel_time(m.kernel, device) / m.seconds - 1 for m in kept_out]
        for device in (held, held.in_bursts())
    )
    assert median(min(map(abs, pair)) for pair in zip(slow, fast, strict=True)) < 0.05
    assert median(fast) < 0.01
    assert median(slow) > -0.01
    large = [error for error, m in zip(slow, kept_out, strict=True) if m.kernel.flops >= 1e12]
    assert abs(median(large)) < 0.04
