"""Drawn step times spread as the first order that intervals rest on says."""

import numpy as np
import pytest

from sim import kind
from sim.engine.play import play
from sim.parallel.step import training_step
from sim.scenario.setup import PlanSetup, from_scenario
from sim.uncertainty.draws import KINDS, drawn, split
from sim.uncertainty.intervals import Sigmas
from sim.uncertainty.work_shares import work_shares

ONES = np.ones((len(KINDS), 1))


def setup_of(name: str) -> PlanSetup:
    return from_scenario(kind.load(name))


# Pipeline bubbles, gradients that hide compute, and launches that hide kernels.
@pytest.mark.parametrize(
    ("name", "count", "within"),
    [
        ("megatron-39b", 4000, 0.05),
        ("gpt2-one-gpu", 4000, 0.05),
        pytest.param("llama3-405b-16k", 400, 0.15, marks=pytest.mark.long),
    ],
)
def test_the_spread_of_draws_is_that_of_the_critical_path(name, count, within) -> None:
    setup = setup_of(name)
    program = training_step(setup.job)
    first_order = Sigmas().of_step(work_shares(program, play(program, setup.machine)))
    steps = drawn(setup, Sigmas(), count)
    assert float(np.log(steps).std()) == pytest.approx(first_order, rel=within)


def test_without_errors_every_draw_is_the_step() -> None:
    setup = setup_of("megatron-39b")
    step = play(training_step(setup.job), setup.machine).end
    exact = Sigmas(gemm=0.0, attention=0.0, stream=0.0, collective=0.0, host=0.0)
    assert drawn(setup, exact, 3) == pytest.approx(step, rel=1e-9)


@pytest.mark.parametrize("name", ["megatron-39b", "gpt2-one-gpu"])
def test_when_everything_takes_twice_as_long_so_does_the_step(name: str) -> None:
    setup = setup_of(name)
    step, doubled = split(setup.machine, setup.program).times(np.hstack([ONES, 2.0 * ONES]))
    assert doubled == pytest.approx(2.0 * step, rel=1e-9)


def test_the_same_seed_draws_the_same_times() -> None:
    setup = setup_of("gpt2-one-gpu")
    first, again, other = (drawn(setup, Sigmas(), 5, seed=seed) for seed in (1, 1, 2))
    assert len(first) == 5
    assert (first == again).all()
    assert (first != other).any()


def test_a_pass_that_computes_nothing_but_waits_is_the_host_s() -> None:
    """Experts of a last stage whose tokens all wait: device seconds of 0."""
    plan = {"global_batch": 64, "ep": 8, "pp": 2, "schedule": "zb-v"}
    scenario = kind.described(
        {"name": "waits", "model": "gpt-oss-20b", "topology": "dgx-h100-ndr", "gpus": 64,
         "plan": plan, "straggler": [{"rank": 5, "factor": 1.2}]}
    )  # fmt: skip
    setup = from_scenario(scenario)
    exact = Sigmas(gemm=0.0, attention=0.0, stream=0.0, collective=0.0, host=0.0)
    assert np.isfinite(drawn(setup, exact, 2)).all()
