"""Calls: every kind of memory-bound kernel runs, and a model's kernels are of these kinds."""

import pytest

from sim.analysis.calibration.timing.calls import memory_bound
from sim.analysis.calibration.timing.calls.dispatch import call
from sim.analysis.calibration.timing.calls.memory_bound import KINDS, WIDTH
from sim.config.errors import InputError
from sim.hardware.kernels.calibrated import Calibrated
from sim.hardware.kernels.measurements import Measurement
from sim.hardware.kernels.profile import Origin, Profile
from sim.kind import load
from sim.model.kernels import Attention, Gemm, Kernel, MemoryBound
from sim.model.optimizers import optimizer_work
from sim.scenario.setup import from_scenario
from sim.uncertainty.device_time import _kernels

# Kernels of eager models that have no kind of their own.
PLAIN = ("residual", "join qkv grad", "positions", "positions grad", "next sentence")


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_runs(name: str) -> None:
    pytest.importorskip("torch")
    kernel = memory_bound.kernel(name, 1e5, "cpu")
    assert kernel.bytes == pytest.approx(1e5, rel=0.6)
    call(kernel, "cpu")()


@pytest.mark.parametrize("name", ["forward", "dgrad", "wgrad"])
def test_products_have_the_shape_of_their_description(name: str) -> None:
    pytest.importorskip("torch")
    kernel = Gemm(name=name, m=8, n=16, k=32, precision="fp32")
    shape = tuple(call(kernel, "cpu")().shape)
    assert shape == ((16, 8) if name == "wgrad" else (8, 16))  # torch's gradient is (out, in)


@pytest.mark.parametrize("backward", [False, True])
def test_attention_runs_with_fewer_keys_than_queries(backward: bool) -> None:
    pytest.importorskip("torch")
    kernel = Attention(
        name="", batch=1, heads=4, kv_heads=2, q=16, kv=16, head=8, causal=True,
        backward=backward, precision="fp32",
    )  # fmt: skip
    result = call(kernel, "cpu")()
    assert len(result) == (3 if backward else 1)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(InputError, match="no torch call for 'warp'"):
        call(MemoryBound(name="warp", bytes=8.0), "cpu")


@pytest.mark.parametrize(("fused", "kind"), [(True, "adam"), (False, "adam for-each")])
def test_a_step_of_the_optimizer_has_the_time_of_its_own_kernels(fused: bool, kind: str) -> None:
    measured = [
        Measurement(kernel=MemoryBound(name=name, bytes=1e6), seconds=seconds)
        for name, seconds in (("adam", 1e-3), ("adam for-each", 4e-3), ("stream", 7e-3))
    ]
    profile = Profile(origin=Origin(device="", measurements=""), measurements=tuple(measured))
    step = optimizer_work(parameters=1e6, precision="fp32", clip=False, fused=fused)[0]
    assert step.bytes == KINDS[kind].passes * 4e6, "a kind counts the passes that the model counts"
    timed = Calibrated(profile, lambda kernel: 1.0)(step)
    assert timed is not None
    seconds = {"adam": 1e-3, "adam for-each": 4e-3}[kind]
    assert timed.seconds == pytest.approx(seconds * step.bytes / 1e6)


@pytest.mark.parametrize("model", ["gpt2-124m", "bert-large", "llama3.2-1b"])
def test_kinds_cover_what_eager_models_run(model: str) -> None:
    """Each kind has a curve with a speed of its own: few kernels of a step are of no kind."""
    unknown = {name for name, kind in _by_kind(model).items() if kind == "stream"}
    assert {name for name in unknown if not name.endswith(PLAIN)} <= {
        "gather masked", "scatter masked", "zero gradients", "embedding accumulate"
    }  # fmt: skip


def test_a_residual_with_dropout_is_another_kind_than_a_sum() -> None:
    assert _by_kind("gpt2-124m")["ffn residual"] == "dropout residual"
    assert _by_kind("llama3.2-1b")["ffn residual"] == "stream"


def test_normalisations_have_kinds_of_their_own() -> None:
    assert _by_kind("gpt2-124m")["ffn norm grad"] == "norm grad"
    assert _by_kind("llama3.2-1b")["ffn rms norm grad"] == "rms norm grad"


def _by_kind(model: str) -> dict[str, str]:
    """The kind that each memory-bound kernel of a step on a CPU is timed by."""
    names = list(KINDS)
    profile = Profile(
        origin=Origin(device="cpu", measurements=""),
        measurements=tuple(
            Measurement(kernel=MemoryBound(name=name, bytes=size), seconds=size * (1 + number))
            for number, name in enumerate(names)
            for size in (1.0, 1e15)
        ),
    )
    times = Calibrated(profile, lambda kernel: 1.0)
    settings = {"stack": "pytorch-cpu", "model": model, "plan.precision": "fp32",
                "plan.microbatch": 1, "plan.global_batch": 1}  # fmt: skip
    job = from_scenario(load("gpt2-one-gpu", settings)).job
    kernels: list[Kernel] = list(_kernels(job))
    return {
        kernel.name: names[round(predicted.seconds / kernel.bytes) - 1]
        for kernel in kernels
        if isinstance(kernel, MemoryBound) and (predicted := times(kernel))
    }


def test_tensors_of_a_kind_are_as_large_as_asked() -> None:
    assert memory_bound.kernel("copy", 80 * WIDTH, "cpu").bytes == 10 * 2 * 4 * WIDTH
