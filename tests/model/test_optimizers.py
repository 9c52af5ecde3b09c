"""Optimizers: states in closed form, traffic by hand, and what of it depends on shapes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import kind
from sim.config.errors import InputError
from sim.model.kernels import Gemm
from sim.model.operators import Matrix
from sim.model.optimizers import OPTIMIZERS, of, optimizer_work, shares
from sim.scenario.setup import from_scenario
from sim.simulate import answer

MATRICES = [Matrix(1024, 4096, 2), Matrix(4096, 1024), Matrix(32000, 1024, hidden=False)]
HIDDEN = 3 * 1024 * 4096
ALL = HIDDEN + 32000 * 1024
sides = st.integers(1, 10_000)


@pytest.mark.parametrize(
    ("name", "each"),
    [("sgd", 0), ("momentum", 4), ("nesterov", 4), ("adagrad", 4), ("rmsprop", 4), ("lars", 4),
     ("adam", 8), ("lamb", 8), ("adam-8bit", 2 * (1 + 4 / 256))],
)  # fmt: skip
def test_states_are_so_many_bytes_a_parameter(name: str, each: float) -> None:
    assert of(name).state_bytes(1000.0, ()) == pytest.approx(1000 * each)


@given(sides, sides)
def test_adafactor_keeps_rows_and_columns_where_adam_keeps_two_matrices(n: int, m: int) -> None:
    """Shazeer and Stern 2018, section 3: n + m against 2 n m."""
    matrix = [Matrix(n, m)]
    factored = of("adafactor").state_bytes(n * m, matrix)
    adam = of("adam").state_bytes(n * m, matrix)
    assert factored / adam == pytest.approx((n + m) / (2 * n * m))


def test_adafactor_keeps_whole_second_moments_of_vectors() -> None:
    assert of("adafactor").state_bytes(110.0, [Matrix(10, 10)]) == 4 * (10 + 10 + 10)


def test_muon_keeps_one_moment_of_hidden_matrices_and_adams_of_the_rest() -> None:
    rest = ALL - HIDDEN + 500
    assert of("muon").state_bytes(ALL + 500, MATRICES) == 4 * HIDDEN + 8 * rest


def test_low_precision_moments_halve_states_and_their_traffic() -> None:
    adam = of("adam")
    assert adam.state_bytes(10.0, (), "bf16") == adam.state_bytes(10.0, ()) / 2
    assert adam.traffic(fused=True, moments="bf16") == 12 + 4 * 2
    assert adam.traffic(fused=False, moments="fp8") < adam.traffic(fused=False)


@pytest.mark.parametrize(
    ("name", "moved"),
    [("sgd", 12), ("momentum", 20), ("adam", 28), ("lamb", 28 + 8 + 12), ("lars", 20 + 8),
     ("adam-8bit", 12 + 4 * (1 + 4 / 256)), ("adafactor", 12 + 8 + 8 + 4)],
)  # fmt: skip
def test_a_fused_update_moves_gradient_weight_and_states(name: str, moved: float) -> None:
    assert of(name).traffic(fused=True) == pytest.approx(moved)


@pytest.mark.parametrize(
    ("name", "kernels"), [("lars", (8, 12, 8, 12, 12)), ("adafactor", (8, 8, 8, 12, 4, 8, 8, 12))]
)
def test_an_update_by_single_kernels_moves_what_each_reads_and_writes(
    name: str, kernels: tuple[int, ...]
) -> None:
    assert of(name).traffic(fused=False) == sum(kernels)


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_fusing_never_moves_more(name: str) -> None:
    own = of(name)
    assert own.traffic(fused=True) <= own.traffic(fused=False)


def test_newton_schulz_does_its_flops_on_the_short_side() -> None:
    """5 (2 n^2 m + 2 n^3 + 2 n^2 m) for n x m with n <= m, whichever way it lies."""
    work = optimizer_work(parameters=ALL, optimizer="muon", matrices=MATRICES)
    gemms = [kernel for kernel in work if isinstance(kernel, Gemm)]
    n, m = 1024, 4096
    assert sum(gemm.flops for gemm in gemms) == 3 * 5 * (4 * n * n * m + 2 * n**3)
    assert {gemm.precision for gemm in gemms} == {"bf16"}


def test_ranks_update_whole_matrices() -> None:
    assert [one.number for one in shares([Matrix(4, 8, 10), Matrix(8, 4)], 4)] == [3, 1]


def test_an_unknown_optimizer_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'adafactor'"):
        of("adafactr")


def test_states_of_a_job_follow_its_optimizer() -> None:
    """Llama 3 8B on eight GPUs, states sharded: masters, moments and what Adafactor leaves."""

    def states(*settings: str) -> float:
        job = from_scenario(kind.load("llama3-8b-mxfp8", settings))
        return answer(job).memory_per_gpu["optimizer"]

    parameters = 8_030_261_248 / 8
    assert states() == pytest.approx(12 * parameters)
    assert states("plan.moments=bf16") == pytest.approx(8 * parameters)
    assert states("plan.optimizer=adam-8bit") == pytest.approx((4 + 2 * 260 / 256) * parameters)
    assert states("plan.optimizer=adafactor") == pytest.approx(4 * parameters, rel=2e-3)
    embeddings = 2 * 128256 * 4096 / 8
    muon = states("plan.optimizer=muon")
    assert muon == pytest.approx(8 * (parameters - embeddings) + 12 * embeddings, rel=1e-4)


def test_muon_steps_longer_than_adam_and_sharding_shortens_it() -> None:
    def update(*settings: str) -> float:
        job = from_scenario(kind.load("llama3-8b-mxfp8", settings))
        return answer(job).breakdown["optimizer"]

    assert update("plan.optimizer=muon") > 2 * update()
    assert update("plan.optimizer=muon", "plan.zero=0") > 4 * update("plan.optimizer=muon")
