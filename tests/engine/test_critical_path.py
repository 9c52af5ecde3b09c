"""The critical path adds up to the step, whatever a program is made of."""

import numpy as np
import pytest

import sim
from sim.engine.accounts import covered
from sim.engine.clock import play
from sim.engine.critical_path import critical_path
from sim.engine.fold import fold
from sim.engine.record import Record
from sim.program.causes import COMPUTE
from tests.engine.programs import machine, training
from tests.engine.random_programs import random_program


def spent(record: Record) -> float:
    """Seconds on the critical path, all of them."""
    seconds = critical_path(record).values()
    assert all(each >= -1e-12 for each in seconds)
    return sum(seconds)


@pytest.mark.parametrize("shared", [False, True], ids=["links of their own", "shared links"])
@pytest.mark.parametrize("seed", range(40))
def test_the_seconds_of_the_critical_path_are_the_step(seed: int, shared: bool) -> None:
    record = play(random_program(seed, shared=shared))
    assert spent(record) == pytest.approx(record.end, rel=1e-9)


@pytest.mark.parametrize("style", ["batched", "async-send", "overlapped"])
@pytest.mark.parametrize("slowdown", [{}, {3: 1.5}], ids=["healthy", "a slow rank"])
def test_those_of_a_pipeline_are_its_step(style, slowdown) -> None:
    program = training(tp=2, dp=2, pp=4, microbatches=8, style=style, boundary=1e8)
    record = play(fold(program, machine("dgx-a100-hdr", 16, slowdown=slowdown)))
    assert spent(record) == pytest.approx(record.end, rel=1e-9)


def test_without_messages_that_take_time_it_runs_through_the_passes_of_the_first_stage() -> None:
    program = training(pp=2, microbatches=4, layers=1, boundary=0.0, host=0.0, overlap=False)
    path = critical_path(play(fold(program, machine("dgx-a100-hdr", 2))))
    # Forward on the first stage, all of the second's passes, backward on the first: 15 ms.
    assert sum(path[stage, COMPUTE] for stage in (0, 1)) == pytest.approx(5 * 3e-3)


@pytest.mark.parametrize("seed", range(20))
def test_the_union_of_intervals_is_what_a_grid_counts(seed: int) -> None:
    rng = np.random.default_rng(seed)
    begin = rng.integers(0, 100, 30).astype(float)
    end = begin + rng.integers(0, 9, 30)
    counted = {at for b, e in zip(begin, end, strict=True) for at in range(int(b), int(e))}
    assert covered(begin, end) == len(counted)


def test_what_zero_3_gathers_ahead_is_hidden_and_what_it_gathers_late_is_not() -> None:
    job = {"network.bandwidth": "1600 Gb/s"}  # all of it has time to pass behind compute
    ahead = sim.run(sim.load("llama2-70b-fsdp", job))
    late = sim.run(sim.load("llama2-70b-fsdp", {**job, "plan.prefetch": 0}))
    name = "data communication"
    assert ahead.hidden[name] > late.hidden.get(name, 0.0)
    assert late.breakdown[name] > ahead.breakdown[name]


@pytest.mark.parametrize("scenario", ["gpt3-175b-megatron", "pipedream-2bw", "mixtral-8x7b"])
def test_hidden_seconds_are_communication_of_a_rank_within_the_step(scenario: str) -> None:
    result = sim.run(scenario)
    assert result.hidden
    for cause, seconds in result.hidden.items():
        assert cause.kind == "communication"  # type: ignore[attr-defined]
        assert 0.0 < seconds + result.breakdown.get(cause, 0.0) < result.step_time
    path = sum(row["seconds"] for row in result.critical_path)
    assert path == pytest.approx(result.step_time, rel=1e-9)
