"""Transfers that a rank does not wait for are in flight all the same."""

import numpy as np
import pytest

import sim
from sim.engine.accounts import covered


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
