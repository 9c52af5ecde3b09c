"""A trace moves to another device: by shapes, by memory bandwidth, by names; the rest is told."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from sim.config.errors import InputError
from sim.hardware.device import load
from sim.hardware.kernels.time import kernel_time
from sim.interface.cli.main import main
from sim.jobs.traces.devices import Devices, devices_of
from sim.jobs.traces.kineto_operators import shaped
from sim.jobs.traces.rank_trace import Kernel, RankTrace
from sim.jobs.traces.reading import read
from sim.jobs.traces.replay import replay
from sim.model.kernels import Attention, Gemm
from tests.jobs.traces.synthetic import Machine

H100, MI300X = "h100-80gb-sxm", "mi300x"
M, N, K = 4096, 8192, 2048
PRODUCT = Gemm(name="", m=M, n=N, k=K, precision="bf16")
HEADS = [[4, 16, 2048, 128]] * 3
FUSED = "aten::_scaled_dot_product_flash_attention"


@pytest.fixture
def path(tmp_path):
    """A product of known shape, another of its name, attention, elementwise work, an all-reduce, a
    copy, a large product without a shape, and a kernel that nobody knows."""
    rank = Machine()
    bf16 = ["c10::BFloat16"] * 3
    rank.op("aten::mm", 5.0)
    rank.events[-1]["args"] = {"Input Dims": [[M, K], [K, N]], "Input type": bf16[:2]}
    rank.launch(300.0, "gemm_a")
    rank.launch(100.0, "gemm_a")
    rank.op(FUSED, 5.0)
    causal = ["", "", "", "0.", "True"]
    rank.events[-1]["args"] = {
        "Input Dims": HEADS, "Input type": bf16, "Concrete Inputs": causal
    }  # fmt: skip
    rank.launch(500.0, "flash_fwd_kernel")
    rank.launch(50.0, "void at::native::vectorized_elementwise_kernel<4>")
    rank.reduce(70.0, stream=7)
    rank.launch(20.0, "Memcpy HtoD (Pageable -> Device)")
    rank.launch(200.0, "sm90_xmma_gemm_bf16")
    rank.launch(10.0, "mystery")
    rank.synchronize()
    return rank.write(tmp_path / "trace.json")


def seconds(rank):
    return {n: 1e6 * kernel.seconds for n, kernel in enumerate(rank.kernels)}


def moved(path, source, target):
    return seconds(Devices(source, target).of([read(path)])[0])


def twice_as_fast(device):
    rates = {name: 2 * getattr(device.peak, name) for name in device.peak.known}
    gemm = replace(device.gemm, floor=device.gemm.floor / 2, prologue=device.gemm.prologue / 2)
    return replace(
        device, peak=replace(device.peak, **rates), memory_bandwidth=2 * device.memory_bandwidth,
        gemm=gemm, stream=replace(device.stream, floor=device.stream.floor / 2),
    )  # fmt: skip


def test_nothing_changes_on_the_same_device(path):
    assert moved(path, load(H100), load(H100)) == pytest.approx(seconds(read(path)), rel=1e-12)
    answer = replay(path, device=H100, source=H100)
    assert answer.changed.step_time == pytest.approx(answer.replayed.step_time, rel=1e-9)
    assert answer.moved.host == 1.0


def test_on_a_device_twice_as_fast_all_that_moves_takes_half(path):
    before, after = seconds(read(path)), moved(path, load(H100), twice_as_fast(load(H100)))
    ratios = [after[n] / before[n] for n in before]
    assert ratios == pytest.approx([0.5, 0.5, 0.5, 0.5, 1.0, 1.0, 0.5, 1.0])


def test_shapes_move_by_both_devices_kernel_models(path):
    attention = Attention(
        name="", batch=4, heads=16, kv_heads=16, q=2048, kv=2048, head=128, causal=True
    )
    after = moved(path, load(H100), load(MI300X))
    product, fused = (
        kernel_time(work, load(MI300X), ("flash2",)) / kernel_time(work, load(H100), ("flash2",))
        for work in (PRODUCT, attention)
    )
    assert after[0] == pytest.approx(300 * product)
    assert after[1] == pytest.approx(100 * product)  # as the other of its name
    assert after[2] == pytest.approx(500 * fused)


@pytest.mark.parametrize(("idle", "bursts"), [(0.0, False), (20_000.0, True)])
def test_a_device_that_waits_keeps_its_full_clock(tmp_path, idle, bursts):
    rank = Machine()
    rank.op("aten::mm", 5.0)
    shapes = {"Input Dims": [[M, K], [K, N]], "Input type": ["c10::BFloat16"] * 2}
    rank.events[-1]["args"] = shapes
    rank.launch(1000.0, "gemm_a")
    rank.synchronize()
    rank.think(idle)
    rank.launch(1.0, "fill_elementwise")
    rank.synchronize()
    path = rank.write(tmp_path / "trace.json")
    found = devices_of([read(path)], "a100-80gb-sxm", H100)
    for device, name in ((found.source, H100), (found.target, "a100-80gb-sxm")):
        assert device == (load(name).in_bursts() if bursts else load(name))


def test_bytes_move_at_the_other_bandwidth_behind_the_other_floor(path):
    here, there = load(H100), load(MI300X)
    rates = [device.memory_bandwidth * device.stream.bandwidth for device in (here, there)]
    left = 50e-6 - here.stream.floor
    expected = there.stream.floor + left * rates[0] / rates[1]
    assert moved(path, here, there)[3] == pytest.approx(1e6 * expected)


def test_the_answer_says_how_much_moved_by_which_rule(path):
    answer = replay(path, device=MI300X, source=H100)
    shares = {rule.rule: (rule.kernels, 1e6 * rule.before) for rule in answer.moved.rules}
    assert shares == {
        "attention by their shapes": (1, pytest.approx(500)),
        "products by their shapes": (1, pytest.approx(300)),
        "products as large ones": (1, pytest.approx(200)),
        "products as others of the same name": (1, pytest.approx(100)),
        "collectives": (1, pytest.approx(70)),
        "by memory bandwidth": (1, pytest.approx(50)),
        "copies to or from the host": (1, pytest.approx(20)),
        "unknown kernels": (1, pytest.approx(10)),
    }
    assert answer.moved.moved == pytest.approx(1150 / 1250)
    assert (answer.moved.unknown, answer.moved.host) == (("mystery",), None)
    text = str(answer)
    assert "no rule knows mystery" in text
    assert "rules convert 92.0% of its seconds" in text


def test_collectives_move_with_the_network(path):
    answer = replay(path, device=MI300X, source=H100, topology="dgx-h100-ndr", gpus=8)
    rules = {rule.rule: rule for rule in answer.moved.rules}
    assert "collectives" not in rules
    assert 0 < rules["collectives by the network"].after != pytest.approx(70e-6)


def test_a_trace_names_its_device(path):
    document = json.loads(path.read_text())
    document["deviceProperties"] = [{"name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85 * 10**9}]
    path.write_text(json.dumps(document))
    assert replay(path, device=MI300X).moved.source == "H100 80GB SXM"
    document["deviceProperties"][0]["name"] = "PG509-210"
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=r"is of 'PG509-210'.*--from"):
        replay(path, device=MI300X)


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--device", MI300X], "--from"),
        (["--from", H100], "moves nothing by itself"),
        (["--device", "cpu", "--from", H100], "sim capture"),
        (["--device", "v100-32gb-sxm", "--from", H100], "has no bf16"),
    ],
)
def test_what_cannot_move_is_told_in_a_line(path, words, fault):
    result = CliRunner().invoke(main, ["replay", str(path), *words])
    assert result.exit_code == 2
    assert fault in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(("name", "precision"), [("scudnn_fprop", "tf32"), ("sgemm", "fp32")])
def test_convolutions_in_fp32_are_rounded_where_there_is_tf32(name, precision):
    v100, a100 = load("v100-32gb-sxm"), load("a100-80gb-sxm")
    work = Gemm(
        name="convolution" if precision == "tf32" else "mm", m=M, n=N, k=K, precision="fp32"
    )
    kernel = Kernel(name=name, stream="stream 7", seconds=1.0, work=work)
    rank = RankTrace(rank=0, world=1, kernels=(kernel,), host=(), steps=1, ends=(0.0, 1.0))
    (moved,) = Devices(v100, a100).of([rank])[0].kernels
    there = kernel_time(replace(work, precision=precision), a100)
    assert moved.seconds == pytest.approx(there / kernel_time(work, v100))


def convolution(**args):
    types = ["float", "float", "", *["ScalarList"] * 3]
    words = ["", "", "", "[2, 2]", "[3, 3]", "[1, 1]", "False", "[0, 0]", "1"]
    dims = [[8, 3, 224, 224], [64, 3, 7, 7], [], [], [], []]
    given = {"Input Dims": dims, "Input type": types, "Concrete Inputs": words}
    return {"name": "aten::convolution", "args": given | args}


def test_a_convolution_has_its_result_by_strides_and_paddings():
    work = shaped(convolution())
    assert work.flops == 2 * 8 * 112 * 112 * 64 * 3 * 7 * 7
    assert shaped(convolution(**{"Concrete Inputs": []})) is None
