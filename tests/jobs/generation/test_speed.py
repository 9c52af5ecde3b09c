"""Limits and hand counts of the seconds and the memory of a server."""

from dataclasses import replace

import pytest

from sim.config.errors import InputError
from sim.engine.machine import Machine
from sim.hardware.device import Device, Peaks
from sim.hardware.kernels.rates import GemmRates, MemoryBoundRates
from sim.jobs.generation import attention
from sim.jobs.generation.attention import Reading
from sim.jobs.generation.layout import Layout
from sim.jobs.generation.server import Speed
from sim.model.counts import parameters
from sim.model.execution import Sharding
from sim.model.kernels import Gemm
from sim.model.reading import load
from tests.jobs.generation.servers import h100s, speed

_FREE = "1e24 FLOP/s"


def ideal(device: Device) -> Device:
    """The same memory, and kernels that neither compute nor begin."""
    free = Peaks(**dict.fromkeys(("fp32", "tf32", "fp16", "bf16", "fp8"), 1e24))
    gemm = GemmRates(
        full=replace(device.gemm.full, fp16=1.0, bf16=1.0), half_tile=1.0, quarter_tile=1.0,
        prologue=0.0, epilogue=0.0, floor=0.0, bandwidth=1.0,
    )  # fmt: skip
    stream = MemoryBoundRates(bandwidth=1.0, floor=0.0)
    return replace(device, peak=free, gemm=gemm, stream=stream, clock=1e15, draw=None)


@pytest.fixture
def without_overheads(monkeypatch: pytest.MonkeyPatch) -> Machine:
    reading = Reading(floor=0.0, cta=0.0, share=1.0, converts=1e9)
    monkeypatch.setattr(attention, "READINGS", {"hopper": reading})
    machine = h100s()
    topology = replace(machine.topology, device=ideal(machine.topology.device))
    return replace(machine, topology=topology)


@pytest.mark.parametrize("name", ["llama3-8b", "qwen3-30b-a3b", "deepseek-v2-lite"])
@pytest.mark.parametrize("context", [1, 10_000])
def test_a_sequence_alone_decodes_at_the_bandwidth_over_the_bytes_read(
    name: str, context: int, without_overheads: Machine
) -> None:
    model, engine = load(name), replace(speed().engine, step=0.0, sequence=0.0)
    of = Speed(model, without_overheads, engine)
    read = sum(
        item.batch * item.n * item.k * 2.0 * often
        for item, often in [*of.passes.body(1), *of.passes.head(1)]
        if isinstance(item, Gemm)
    )
    bandwidth = without_overheads.topology.device.memory_bandwidth
    expected = (read + context * of.bytes_per_token) / bandwidth
    assert of.decode(1, context) == pytest.approx(expected, rel=0.01)
    assert read < of.weights


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama3-8b", 32 * 2 * 8 * 128 * 2),  # layers x (K, V) x heads x head x bf16
        ("gpt2-124m", 12 * 2 * 12 * 64 * 2),
        ("deepseek-v2-lite", 27 * (512 + 64) * 2),  # latent and rotary keys
    ],
)
def test_keys_and_values_of_a_token_have_the_bytes_of_a_hand_count(
    name: str, expected: int
) -> None:
    assert speed(name).bytes_per_token == expected


def test_windows_keep_no_more_than_their_tokens() -> None:
    of = speed("gpt-oss-20b")  # every other of 24 layers sees 128 tokens
    each = 12 * 2 * 8 * 64 * 2
    assert (of.windows, of.window_bytes) == ((0, 128), (each, each))


def test_a_chunk_of_a_sequence_is_the_most_that_its_layers_hold() -> None:
    of = speed("llama4-scout", tp=8)  # three of four layers see 8,192 tokens
    assert of.windows == (0, 8192)
    assert of.step(300, [300 * 500] * 2, ((8100, 0), (500, 1000))) > of.decode(300, 300 * 500)
    assert of.decode(1, 8192) < of.decode(1, 16_384) < of.decode(1, 8192) * 1.1


def test_states_take_the_same_whatever_the_length_of_a_sequence() -> None:
    of = speed("nemotron-3-nano")  # 23 layers of 64 heads of 64 with 128 numbers a column
    state, convolution = 64 * 64 * 128, 3 * (64 * 64 + 2 * 8 * 128)
    assert of.state_bytes == 23 * 2 * (state + convolution)
    assert of.bytes_per_token == 6 * 2 * 2 * 128 * 2  # attention in 6 layers of 52
    without = of.decode(1, 1) + 63 * 2 * of.state_bytes / of.device.memory_bandwidth
    assert of.decode(64, 64) > without
    assert speed("nemotron-3-nano", tp=2).state_bytes == of.state_bytes / 2


@pytest.mark.parametrize(("tp", "shares"), [(2, 2), (8, 8), (16, 8)])
def test_ranks_share_keys_and_values_as_far_as_there_are_heads(tp: int, shares: int) -> None:
    assert speed("llama3-8b", tp=tp).bytes_per_token == speed("llama3-8b").bytes_per_token / shares


def test_an_eight_bit_cache_and_stages_halve_the_bytes() -> None:
    whole = speed("llama3-8b").bytes_per_token
    assert speed("llama3-8b", cache="fp8").bytes_per_token == whole / 2
    assert speed("llama3-8b", pp=2).bytes_per_token == whole / 2


@pytest.mark.parametrize("name", ["llama3-8b", "qwen3-30b-a3b", "gpt2-124m"])
def test_weights_are_the_parameters_that_are_published(name: str) -> None:
    assert speed(name).weights == pytest.approx(2.0 * parameters(load(name)), rel=1e-6)


def test_weights_in_eight_bits_take_about_half() -> None:
    low = speed("llama3-70b", tp=8, precision="fp8").weights
    assert 0.5 < low / speed("llama3-70b", tp=8).weights < 0.56


@pytest.mark.parametrize("name", ["llama3-8b", "deepseek-v2-lite", "gpt-oss-20b"])
def test_a_decode_step_grows_with_its_batch_and_with_its_caches(name: str) -> None:
    of = speed(name)
    steps = [of.decode(batch, batch * 2000) for batch in (1, 2, 8, 32, 64, 256)]
    assert steps == sorted(steps)
    assert of.decode(16, 16_000) <= of.decode(16, 64_000)
    per_token = [seconds / batch for seconds, batch in zip(steps, (1, 2, 8, 32, 64), strict=False)]
    assert per_token == sorted(per_token, reverse=True)


def test_experts_that_no_token_reaches_are_not_read() -> None:
    of = speed("qwen3-30b-a3b", tp=2)  # 8 of 128 experts

    def hit(rows: int) -> int:
        return max(item.batch for item, _ in of.passes.body(rows) if isinstance(item, Gemm))

    assert hit(2) == 16  # two tokens on two ranks: 128 (1 - (1 - 8/128)^2) = 15.5
    assert hit(1024) == 128


def test_tokens_go_to_experts_in_the_format_of_the_products() -> None:
    wide, low = (
        speed("qwen3-30b-a3b", dp=8, ep=8, precision=precision).account(2048, 0)["communication"]
        for precision in ("bf16", "fp8")
    )
    assert 0.6 < low / wide < 0.9  # on their way out; results come back as they are


def test_products_of_a_prompt_are_those_of_a_forward_pass_in_training() -> None:
    of = speed("llama3-8b")
    flops = sum(i.flops * n for i, n in of.passes.body(4096) if isinstance(i, Gemm))
    model = of.passes.model
    layer = 2 * model.hidden * (model.query_width * 2 + model.kv_width * 2 + 3 * model.ffn)
    assert flops == pytest.approx(4096 * model.layers * layer)
    assert isinstance(of.passes.run(8).sharding, Sharding)


@pytest.mark.parametrize(
    ("name", "layout", "told"),
    [
        ("llama3-8b", Layout(tp=3), "tp = 3 does not divide heads = 32"),
        ("llama3-8b", Layout(ep=2), "ep is set but the model has no experts"),
        ("llama3-8b", Layout(dp=2), "set servers instead"),
        ("llama3-8b", Layout(pp=64), "pp = 64 stages for 32 layers"),
        ("llama3-70b", Layout(), "weights take 131 GiB"),
        ("qwen3-30b-a3b", Layout(tp=2, ep=4), "ep = 4 does not divide the 2 ranks"),
        ("bert-large", Layout(), "does not write a text"),
        ("resnet50", Layout(), "does not write a text"),
    ],
)
def test_a_layout_that_cannot_be_is_refused(name: str, layout: Layout, told: str) -> None:
    with pytest.raises(InputError, match=told):
        Speed(load(name), h100s(), speed().engine, layout)
