"""Orders that are looked for: within their memory, never longer than the handcrafted ones."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim import run
from sim.config.errors import InputError
from sim.interface.outputs import actions
from sim.kind import load
from sim.parallel.bubble_filling import Costs
from sim.parallel.schedule import schedule, searched
from sim.parallel.schedule_file import refuse_deadlock
from tests.parallel.test_schedule import in_flight, played


def costs(stages: int, times: dict[str, int], memory: float, held: float = 1.0) -> Costs:
    def rows(value: float) -> tuple[tuple[float, ...], ...]:
        return ((float(value),),) * stages

    return Costs(
        forward=rows(times["F"]), inputs=rows(times["I"]), weights=rows(times["W"]),
        kept=rows(1), held=rows(held), limits=(memory * stages,) * stages, apart=True,
    )  # fmt: skip


def found(own: Costs, microbatches: int):
    search = searched("zb-auto")
    assert search is not None
    return search(own, microbatches)


def longest(own, times) -> float:
    start, end = played(own, times)
    return float(max(e - s for s, e in zip(start, end, strict=True)))


@settings(max_examples=25, deadline=None)
@given(
    st.integers(2, 8),
    st.integers(0, 12),
    st.fixed_dictionaries({kind: st.integers(2, 6) for kind in "FIW"}),
    st.sampled_from([("zb-h1", 1.0), ("zb-h2", 2.0)]),
)
def test_what_is_found_is_as_short_as_what_is_handcrafted_in_the_same_memory(p, more, times, base):
    name, memory = base
    m = 2 * p + more
    own = found(costs(p, times, memory), m)
    refuse_deadlock(own)
    assert longest(own, times) <= longest(schedule(name, p, m), times)
    assert max(in_flight(own, stage) for stage in range(p)) <= memory * p


def test_twice_the_memory_of_1f1b_leaves_no_bubble_where_handcrafted_orders_have_one():
    """Qi et al. 2023, section 5.3: ZB-2p is at less than 1 %, weight gradients holding half."""
    times = {"F": 5, "I": 6, "W": 4}
    ideal = 64 * sum(times.values())
    assert longest(found(costs(8, times, 2.0, held=0.5), 64), times) < 1.01 * ideal
    assert longest(schedule("zb-h2", 8, 64), times) > 1.02 * ideal


def test_no_room_for_one_microbatch_is_refused():
    with pytest.raises(InputError, match=r"plan, schedule_memory: stage 0 has no room"):
        found(costs(4, {"F": 1, "I": 1, "W": 1}, 0.1), 8)


def step(name: str, **plan: object):
    """GPT-3's layers on eight stages of a node."""
    usual = {"schedule": name, "recompute": "none", "sequence_parallel": False, "interleave": 1}
    return run(load("gpt3-175b-megatron", {f"plan.{k}": v for k, v in {**usual, **plan}.items()}))


def test_a_job_finds_its_order_by_its_own_times():
    fixed, own, twice = step("zb-h1"), step("zb-auto"), step("zb-auto", schedule_memory=2.0)
    assert own.schedule is not None
    assert own.schedule.name == "zb-auto"
    assert own.step_time <= fixed.step_time * 1.005  # messages are estimated by the longest one
    assert own.memory_per_gpu["activations"] <= fixed.memory_per_gpu["activations"] * (1 + 1e-9)
    assert twice.step_time < own.step_time
    assert own.gains["zb-h1"] == pytest.approx(fixed.step_time / own.step_time - 1)
    assert {"1f1b", "zb-h2"} <= own.gains.keys()
    assert fixed.gains == {}
    assert twice.memory_per_gpu["activations"] > own.memory_per_gpu["activations"]


def test_the_order_that_was_found_is_what_is_written_down(tmp_path: Path):
    result = step("zb-auto")
    actions.write(result, tmp_path / "found.csv")
    again = step(str(tmp_path / "found.csv"))
    assert again.step_time == pytest.approx(result.step_time, rel=1e-12)


def test_memory_for_a_schedule_that_looks_for_no_order_is_refused():
    with pytest.raises(InputError, match="schedule '1f1b' does not search an order"):
        step("1f1b", schedule_memory=2.0)
