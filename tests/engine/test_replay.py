"""Replay is the clock without a clock: equal to 1e-9 wherever no two transfers contend."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sim.config.errors import InputError
from sim.engine.clock import play
from sim.engine.costs import Cost
from sim.engine.fold import fold
from sim.engine.folded import (
    CommunicateStep,
    ComputeStep,
    FoldedProgram,
    LinkClass,
    RoleProgram,
    Step,
    Transfer,
)
from sim.engine.replay import Replay, with_parameters
from sim.engine.replay_contention import check, clocked_contention, contended
from sim.engine.timeline import Role
from sim.program.causes import COMPUTE
from sim.program.durations import Duration
from tests.engine.programs import machine, training
from tests.engine.random_programs import random_program, transfer

EXACT = dict(rel=1e-9, abs=1e-12)

plans = st.fixed_dictionaries(
    dict(
        tp=st.sampled_from((1, 2, 8)),
        dp=st.sampled_from((1, 2)),
        pp=st.sampled_from((1, 2, 4)),
        microbatches=st.sampled_from((1, 2, 4, 8, 12)),
        chunks=st.sampled_from((1, 2, 3)),
        style=st.sampled_from(("batched", "async-send", "overlapped")),
        layers=st.integers(1, 3),
        forward=st.floats(1e-4, 1e-2),
        boundary=st.floats(1e3, 1e7),
        gradients=st.floats(1e6, 1e9),
        overlap=st.booleans(),
        host=st.sampled_from((0.0, 1e-5, 1e-3)),
    )
)


def folded(plan: dict) -> FoldedProgram:
    plan = {"tp": 1, "dp": 1, **plan}
    if plan["pp"] == 1 or plan["microbatches"] % plan["pp"]:
        plan["chunks"] = 1
    return fold(training(**plan), machine("dgx-a100-hdr", plan["tp"] * plan["dp"] * plan["pp"]))


def alone(*steps: Step, transfers: tuple[Transfer, ...] = (), links: int = 1) -> FoldedProgram:
    """A program of one role."""
    role = Role(index=0, name="role", stage=0, ranks=1, first_rank=0)
    return FoldedProgram(
        roles=(RoleProgram(role, {"compute": list(steps)}),),
        transfers=transfers,
        links=tuple(LinkClass(f"link {n}", 1, 1.0) for n in range(links)),
    )


def work(index: int, device: float, *, host: float = 0.0, sync: bool = False) -> ComputeStep:
    cost = Cost(Duration(device, host, host + device), {COMPUTE: device})
    return ComputeStep(index, f"C{index}", cost, sync=sync)


# --- By hand --------------------------------------------------------------------------------------


def test_computations_in_a_row_add_up():
    assert Replay(alone(work(0, 1.0), work(1, 2.0))).time() == 3.0


def test_a_slow_host_is_what_a_chain_of_short_computations_waits_for():
    steps = [work(i, 0.5, host=2.0) for i in range(3)]
    assert Replay(alone(*steps)).time() == 2.0 + 2.0 + 2.0 + 0.5


def test_a_synchronised_host_launches_nothing_ahead():
    assert Replay(alone(work(0, 3.0, sync=True), work(1, 1.0, host=1.0))).time() == 5.0
    assert Replay(alone(work(0, 3.0), work(1, 1.0, host=1.0))).time() == 4.0


def test_ranks_that_wait_for_each_other_are_refused():
    program = alone(CommunicateStep(0, "never", (0,)), transfers=(transfer("T", arity=2),))
    with pytest.raises(InputError, match="wait for each other"):
        Replay(program).time()


# --- The clock is the reference -------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(plan=plans)
def test_replay_equals_the_clock_on_random_plans(plan):
    program = folded(plan)
    replay = Replay(program)
    assume(not contended(replay))
    assert replay.time() == pytest.approx(play(program).end, **EXACT)


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 10**9), roles=st.integers(1, 5), steps=st.integers(1, 60))
def test_replay_equals_the_clock_on_random_programs(seed, roles, steps):
    program = random_program(seed, roles=roles, steps=steps)
    assert Replay(program).time() == pytest.approx(play(program).end, **EXACT)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_no_contention_found_means_that_the_clock_finds_none(seed):
    program = random_program(seed, steps=12, shared=True)
    replay = Replay(program)
    assume(not contended(replay))
    assert replay.time() == pytest.approx(play(program).end, **EXACT)
    assert not clocked_contention(program)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_the_factors_of_a_clocked_run_give_its_time_back(seed):
    program = random_program(seed, shared=True)
    assert as_clocked(program).time() == pytest.approx(play(program).end, **EXACT)


def as_clocked(program: FoldedProgram) -> Replay:
    """A replay in which traffic contends as one run of the clock found."""
    contention = clocked_contention(program)
    return Replay(program, factors=contention.factors, longer=contention.longer)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_a_clocked_run_ends_with_its_last_span(seed):
    record = play(random_program(seed, shared=True))
    assert record.end == max(span.end for span in record.timeline.spans)


@pytest.mark.parametrize("style", ["batched", "async-send", "overlapped"])
def test_steps_are_ready_and_end_when_they_do_on_the_clock(style):
    program = folded(dict(tp=2, dp=2, pp=4, microbatches=8, chunks=2, style=style))
    clocked, spans = play(program), Replay(program).spans()
    names = {
        (number, step.name, stream): step.index
        for number, own in enumerate(program.roles)
        for stream, steps in own.streams.items()
        for step in steps
    }
    assert len(spans) == len(clocked.timeline.spans)
    for span in clocked.timeline.spans:
        index = names[span.role, span.name, span.stream]
        assert spans[span.role, index] == pytest.approx((span.start, span.end), **EXACT)


# --- Columns --------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**9), spread=st.sampled_from((0.01, 0.3, 2.0)))
def test_a_column_is_the_clock_with_its_durations(seed, spread):
    program = random_program(seed)
    replay = Replay(program)
    noise = np.random.default_rng(seed).lognormal(0.0, spread, (len(replay.parameters), 5))
    columns = replay.parameters[:, None] * noise
    for time, column in zip(replay.times(columns), columns.T, strict=True):
        other = with_parameters(program, replay.shape, column)
        assert time == pytest.approx(replay.time(column.copy()), **EXACT)
        assert time == pytest.approx(play(other).end, **EXACT)


def test_chunks_of_columns_change_nothing():
    replay = Replay(random_program(3))
    columns = replay.parameters[:, None] * np.linspace(0.7, 1.4, 700)
    assert replay.times(columns)[600:].tolist() == replay.times(columns[:, 600:]).tolist()


def test_all_durations_doubled_double_the_step():
    replay = Replay(folded(dict(pp=4, microbatches=8, style="overlapped")))
    assert replay.time(2.0 * replay.parameters) == pytest.approx(2.0 * replay.time())


def test_programs_of_one_shape_share_a_graph():
    plan = dict(pp=4, microbatches=8, style="overlapped")
    usual, slower = (Replay(folded(dict(plan, forward=f))) for f in (1e-3, 1.3e-3))
    assert usual.compiled is slower.compiled
    assert usual.time() < slower.time()


def test_durations_far_from_the_first_ones_still_agree_with_the_clock():
    plan = dict(pp=4, microbatches=8, style="overlapped", boundary=1e4)
    for forward in (1e-3, 1e-1, 1e-5):
        program = folded(dict(plan, forward=forward))
        assert Replay(program).time() == pytest.approx(play(program).end, **EXACT)


def test_replicas_meet_at_joint_transfers():
    shared = transfer("T", latency=1.0)
    steps = work(0, 2.0), CommunicateStep(1, "gradients", (0,)), work(2, 3.0)
    replay = Replay(alone(*steps, transfers=(shared,)), joint=frozenset((0,)))
    columns = replay.parameters[:, None] * np.ones(4)
    first = replay.shape.compute_parameter(replay.shape.class_of_computation[0, 0])
    columns[first] = [2.0, 5.0, 1.0, 1.0]
    assert replay.times(columns, group=2).tolist() == [9.0, 9.0, 5.0, 5.0]
    assert replay.times(columns).tolist() == [6.0, 9.0, 5.0, 5.0]


# --- Contention -----------------------------------------------------------------------------------

BUSY = dict(tp=1, pp=4, dp=2, microbatches=8, chunks=2, style="overlapped", boundary=4e7)


def test_contention_is_said_and_taken_from_the_clock():
    program = folded(BUSY)
    assert clocked_contention(program)
    assert contended(Replay(program))
    replay = as_clocked(program)
    assert replay.time() == pytest.approx(play(program).end, **EXACT)
    assert Replay(program).time() < replay.time()


def test_an_approximation_that_is_good_enough_passes_the_check():
    replay = as_clocked(folded(dict(BUSY, boundary=1e6)))
    noise = np.random.default_rng(0).lognormal(0.0, 0.01, (len(replay.parameters), 100))
    assert check(replay, replay.parameters[:, None] * noise) < 0.01


def test_an_approximation_that_is_no_good_is_refused():
    replay = as_clocked(folded(dict(BUSY, boundary=4e8)))
    noise = np.random.default_rng(0).lognormal(0.0, 1.0, (len(replay.parameters), 20))
    with pytest.raises(InputError, match="--engine clock"):
        check(replay, replay.parameters[:, None] * noise)


def test_links_that_are_only_half_used_contend_with_nobody():
    def program(share: float) -> FoldedProgram:
        links = [LinkClass(f"link {number}", 1, 1.0) for number in range(3)]
        transfers = tuple(
            transfer(f"T{number}", size=1.0, loads=((number, 1.0), (2, share)), links=links)
            for number in range(2)
        )
        return alone(CommunicateStep(0, "both", (0, 1)), transfers=transfers, links=3)

    assert not contended(Replay(program(0.5)))
    assert contended(Replay(program(0.6)))
