"""Pipelines that do not drain: the time of a step once the pipeline is full."""

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import sim
from sim.analysis.samples.samples import samples
from sim.config.errors import InputError
from sim.engine.accounts import accounts, bubble_fraction
from sim.engine.play import play
from sim.kind import load
from sim.parallel.schedule import undrained
from sim.program.causes import BUBBLE, COMPUTE, OPTIMIZER
from sim.program.operations import INPUT, Compute, PassOps, Work
from sim.program.program import Exchange, Program, Stage
from tests.engine.programs import machine, segment, undisturbed

ON = undisturbed(machine("example-hosts", 8))
SCENARIO = "zero-bubble-6.2b"


def program(times: list[tuple[float, float]], m: int, update: float = 0.0) -> Program:
    """Stages of so many seconds forward and backward that send nothing to one another."""

    def work(name: str, seconds: float) -> Work:
        cause = OPTIMIZER if name == "update" else COMPUTE
        return Work(name=name, items=(replace(segment(seconds), cause=cause),))

    def stage(number: int, forward: float, back: float) -> Stage:
        ops_by_variant = {}
        for own in passes.actions[number].variants:
            seconds = forward if own.kind == "F" else back
            made = [Compute(name="", work=work("pass", seconds), after=(INPUT,))]
            if own.last and update:
                made.append(Compute(name="update", work=work("update", update)))
            ops_by_variant[own] = PassOps(tuple(made))
        return Stage(ops_by_variant=ops_by_variant)

    passes = undrained("pipedream", len(times), m)
    return Program(
        mesh={"tp": 1, "dp": 1, "pp": len(times)},
        schedule=passes,
        stages=tuple(stage(number, *own) for number, own in enumerate(times)),
        exchange=Exchange(style="overlapped", bytes=0.0),
    )


@pytest.mark.few(4)
@pytest.mark.parametrize("p", [2, 4, 8])
@pytest.mark.parametrize("steps", [1, 3, 8, 16])
def test_equal_stages_take_one_microbatch_each_forward_and_backward_pass(p, steps):
    record = play(program([(1.0, 2.0)] * p, steps, update=0.5), ON)
    assert record.step_time == pytest.approx(3.0 * steps + 0.5, rel=1e-4)
    spent = accounts(record)
    assert bubble_fraction(record, spent) == pytest.approx(0.0, abs=1e-4)
    for account in spent:
        assert account[OPTIMIZER] == pytest.approx(0.5, rel=1e-9)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=2, max_size=6),
    st.integers(1, 5),
)
@example([(6, 7), (1, 1), (3, 9)], 1)  # stages of 13 and 12 come to repeat themselves late
def test_unlike_stages_are_as_fast_as_the_slowest(units, m):
    """What stages wait for one another makes no round trip longer than its slowest stage."""
    times = [(float(forward), float(back)) for forward, back in units]
    record = play(program(times, m), ON)
    assert record.step_time == pytest.approx(m * max(map(sum, times)), rel=1e-4)
    for account, own in zip(accounts(record), times, strict=True):
        assert sum(account.values()) == pytest.approx(record.step_time, rel=1e-9)
        waits = record.step_time - m * sum(own)
        assert account.get(BUBBLE, 0.0) <= waits * (1 + 1e-6) + 2e-2 * record.step_time


def run(name: str, m: int, **more: object):
    plan = {"plan.schedule": name, "plan.global_batch": 3 * m, "plan.schedule_memory": 1.0}
    return load(SCENARIO, {**plan, **more})


def test_without_a_drain_a_step_is_shorter_and_its_account_adds_up():
    drained = sim.run(run("1f1b", 32))
    own = sim.run(run("pipedream-2bw", 32))
    assert own.step_time < drained.step_time * 32 / (32 + 4)
    assert own.bubble_fraction < drained.bubble_fraction / 3
    assert sum(own.breakdown.values()) == pytest.approx(own.step_time, rel=1e-9)
    assert min(own.breakdown.values()) >= 0.0
    # The stage that computes longest bounds the step: it waits for nobody.
    assert own.breakdown.get("bubble", 0.0) < 0.01 * own.step_time


def test_an_update_after_every_microbatch_costs_an_optimizer_step_each():
    one, many = sim.run(run("pipedream", 1)), sim.run(run("pipedream-2bw", 8))
    assert one.breakdown["optimizer"] == pytest.approx(many.breakdown["optimizer"], rel=1e-6)
    assert 8 * one.step_time > many.step_time
    replicas = sim.run(run("pipedream", 2, **{"gpus": 16}))
    assert replicas.step_time > one.step_time  # each update waits for the gradients' sum
    assert replicas.breakdown["data communication"] > 0.0


@pytest.mark.long
def test_folded_is_unfolded():
    scenario = run("pipedream", 2, **{"gpus": 16})
    folded, own = sim.run(scenario), sim.run(scenario, unfold=True)
    assert folded.step_time == pytest.approx(own.step_time, rel=1e-9)


def test_a_slow_rank_is_what_the_step_takes_longer():
    slow = sim.run(run("pipedream", 1, straggler=[{"rank": 3, "factor": 1.5}]))
    healthy = sim.run(run("pipedream", 1))
    assert slow.straggler_seconds == pytest.approx(slow.step_time - healthy.step_time, rel=1e-9)
    assert slow.straggler_seconds > 0.0
    assert sum(slow.breakdown.values()) == pytest.approx(slow.step_time, rel=1e-9)


def test_steps_that_run_into_one_another_have_no_end_to_draw_or_to_replay():
    with pytest.raises(InputError, match="stages end a step at different times"):
        samples(run("pipedream", 1), 10)
    with pytest.raises(InputError, match="a pass sends its result before its end"):
        sim.run(run("pipedream", 1), engine="replay")
