"""What a step consists of: the shares of its critical path are its sensitivities."""

import math
from collections import deque

import pytest

import sim
from sim.engine.play import play
from sim.hardware.kernels.measurements import COLUMNS
from sim.kind import load
from sim.model.kernels import Attention, Gemm, MemoryBound
from sim.parallel import job as jobs
from sim.parallel.step import training_step
from sim.scenario.setup import from_scenario
from sim.uncertainty.intervals import Sigmas
from sim.uncertainty.work_shares import profiled, work_shares

SLOWER = 1.01
KINDS = {"gemm": Gemm, "attention": Attention, "stream": MemoryBound}


def played(name: str):
    setup = from_scenario(load(name))
    program = training_step(setup.job)
    return program, play(program, setup.machine)


def slowed(kind: str, usual):
    """Kernel times with one class slower."""
    return lambda kernel, *rest: (
        usual(kernel, *rest) * (SLOWER if isinstance(kernel, KINDS[kind]) else 1.0)
    )


# Pipeline bubbles, gradients that hide compute, and launches that hide kernels.
@pytest.mark.parametrize(
    "name",
    [
        "megatron-39b",
        "gpt2-one-gpu",
        pytest.param("llama3-405b-16k", marks=pytest.mark.long),
    ],
)
def test_shares_are_the_sensitivities_that_slower_kernels_show(name, monkeypatch) -> None:
    program, record = played(name)
    shares = work_shares(program, record)
    assert sum(shares.values()) == pytest.approx(1.0)
    for kind in ("gemm", "stream"):
        with monkeypatch.context() as patch:
            patch.setattr(jobs, "kernel_time", slowed(kind, jobs.kernel_time))
            patch.setattr(jobs, "_asked", deque(maxlen=1))  # nothing is known of slower kernels
            slower = played(name)[1].end
        seen = math.log(slower / record.end) / math.log(SLOWER)
        assert seen == pytest.approx(shares.get(kind, 0.0), abs=0.035)  # transfers share links


PROFILE = """
device = "a100-80gb-sxm"
measurements = "mine.csv"

[[residuals]]
kind = "gemm"
shapes = {shapes}
median = 0.01
p95 = 0.03
bias = {bias}
sigma = {sigma}
"""
FABRIC = """
backend = "nccl"
measurements = "fabric.csv"
residuals = [
  {name = "all_reduce", readings = 1_000_000_000, least = "8 B", most = "1 GiB", median = 0.1, p95 = 0.2, worst = 0.3, bias = 0.0, sigma = 0.03},
  {name = "all_gather", readings = 1_000_000_000, least = "8 B", most = "1 GiB", median = 0.1, p95 = 0.2, worst = 0.3, bias = 0.0, sigma = 0.04},
]
"""  # noqa: E501
TABLE = (
    ",".join(COLUMNS)
    + "\n"
    + "".join(
        f"gemm,,forward,{size},{size},{size},1,,,,,,false,fp16,,{seconds},0.01,false\n"
        for size, seconds in ((64, 5e-6), (65536, 2.2))
    )
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.csv").write_text(TABLE)
    return tmp_path


def profile(folder, sigma: float, *, shapes: int = 10**9, bias: float = 0.0) -> str:
    """The file of a device's profile that is so far off at products."""
    path = folder / f"mine-{sigma}-{shapes}-{bias}.toml"
    path.write_text(PROFILE.format(sigma=sigma, shapes=shapes, bias=bias))
    return str(path)


def interval(folder, sigma: float) -> dict:
    """Of a job whose device has such a profile."""
    changes = {"device.profile": profile(folder, sigma)}
    return sim.run(sim.load("gpt3-175b-megatron", changes)).interval


def job_with(file: str):
    return from_scenario(load("gpt3-175b-megatron", {"device.profile": file})).job


def test_a_profile_with_smaller_residuals_makes_a_step_surer(folder) -> None:
    fine, coarse = interval(folder, 0.01), interval(folder, 0.3)
    assert fine["kernels"]["sigma"] < fine["kernels"]["usual"] < coarse["kernels"]["sigma"]
    assert fine["scale"] < coarse["scale"]


def test_what_a_profile_does_not_time_is_as_sure_as_without_it(folder) -> None:
    job = job_with(profile(folder, 0.01))
    known = [profiled(job, share=share) for share in (0.0, 0.5, 1.0)]
    usual = Sigmas().gemm
    sigmas = [own.gemm for own in known if own is not None]
    assert sigmas == pytest.approx([usual, (usual + 0.01) / 2, 0.01])


def test_few_shapes_make_nobody_sure(folder) -> None:
    known = [profiled(job_with(profile(folder, 0.0, shapes=n))) for n in (1, 10, 1000)]
    sigmas = [own.gemm for own in known if own is not None]
    assert Sigmas().gemm > sigmas[0] > 0.5 * Sigmas().gemm
    assert sigmas == sorted(sigmas, reverse=True)


def test_a_profile_that_is_biased_is_as_far_off_as_its_bias(folder) -> None:
    known = profiled(job_with(profile(folder, 0.0, bias=-0.45)))
    assert known is not None
    assert known.gemm == pytest.approx(-math.log(0.55))


def test_a_fabric_is_as_sure_as_its_collectives_in_the_mean(folder) -> None:
    (folder / "fabric.toml").write_text(FABRIC)
    job = from_scenario(load("gpt2-one-gpu")).job
    assert profiled(job) is None
    known = profiled(job, str(folder / "fabric.toml"))
    assert known is not None
    assert known.collective == pytest.approx(math.sqrt((0.03**2 + 0.04**2) / 2))
    assert known.gemm == Sigmas().gemm
