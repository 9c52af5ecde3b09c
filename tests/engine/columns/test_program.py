"""Columns take the steps of the clock: equal to 1e-9 wherever no two transfers contend."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sim.config.errors import InputError
from sim.engine.clock import play
from sim.engine.columns.contention import clocked_contention, clocked_times, errors
from sim.engine.columns.program import ColumnProgram
from sim.engine.columns.shape import Shape
from sim.engine.columns.weights import Floats
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


def alone(*steps: Step, transfers: tuple[Transfer, ...] = ()) -> FoldedProgram:
    """A program of one role."""
    role = Role(index=0, name="role", stage=0, ranks=1, first_rank=0)
    return FoldedProgram(
        roles=(RoleProgram(role, {"compute": list(steps)}),),
        transfers=transfers,
        links=(LinkClass("link", 1, 1.0),),
    )


def work(index: int, device: float, *, host: float = 0.0, sync: bool = False) -> ComputeStep:
    cost = Cost(Duration(device, host, host + device), {COMPUTE: device})
    return ComputeStep(index, f"C{index}", cost, sync=sync)


# --- By hand --------------------------------------------------------------------------------------


def test_computations_in_a_row_add_up():
    assert ColumnProgram(alone(work(0, 1.0), work(1, 2.0))).time() == 3.0


def test_a_slow_host_is_what_a_chain_of_short_computations_waits_for():
    steps = [work(i, 0.5, host=2.0) for i in range(3)]
    assert ColumnProgram(alone(*steps)).time() == 2.0 + 2.0 + 2.0 + 0.5


def test_a_synchronised_host_launches_nothing_ahead():
    assert ColumnProgram(alone(work(0, 3.0, sync=True), work(1, 1.0, host=1.0))).time() == 5.0
    assert ColumnProgram(alone(work(0, 3.0), work(1, 1.0, host=1.0))).time() == 4.0


def test_ranks_that_wait_for_each_other_are_refused():
    program = alone(CommunicateStep(0, "never", (0,)), transfers=(transfer("T", arity=2),))
    with pytest.raises(InputError, match="wait for each other"):
        ColumnProgram(program).time()


# --- The clock is the reference -------------------------------------------------------------------


@given(plan=plans)
def test_replay_equals_the_clock_on_random_plans(plan):
    program = folded(plan)
    assume(not clocked_contention(program))
    assert ColumnProgram(program).time() == pytest.approx(play(program).end, **EXACT)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**9), roles=st.integers(1, 5), steps=st.integers(1, 60))
def test_replay_equals_the_clock_on_random_programs(seed, roles, steps):
    program = random_program(seed, roles=roles, steps=steps)
    assert ColumnProgram(program).time() == pytest.approx(play(program).end, **EXACT)


@given(seed=st.integers(0, 10**9))
def test_the_factors_of_a_clocked_run_give_its_time_back(seed):
    program = random_program(seed, shared=True)
    assert as_clocked(program).time() == pytest.approx(play(program).end, **EXACT)


def as_clocked(program: FoldedProgram) -> ColumnProgram:
    """A replay in which traffic contends as one run of the clock found."""
    contention = clocked_contention(program)
    return ColumnProgram(program, factors=contention.factors, longer=contention.longer)


@given(seed=st.integers(0, 10**9))
def test_a_clocked_run_ends_with_its_last_span(seed):
    record = play(random_program(seed, shared=True))
    assert record.end == max(span.end for span in record.timeline.spans)


# --- Columns --------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**9), spread=st.sampled_from((0.01, 0.3, 2.0)))
def test_a_column_is_the_clock_with_its_durations(seed, spread):
    program = random_program(seed)
    replay = ColumnProgram(program)
    noise = np.random.default_rng(seed).lognormal(0.0, spread, (len(replay.parameters), 5))
    columns = replay.parameters[:, None] * noise
    for time, column in zip(replay.times(columns), columns.T, strict=True):
        assert time == pytest.approx(replay.time(column.copy()), **EXACT)
        assert time == pytest.approx(play(with_durations(replay, column)).end, **EXACT)


def with_durations(replay: ColumnProgram, column: Floats) -> FoldedProgram:
    """The program of a replay with the durations of a column."""
    shape, program = replay.shape, replay.shape.program
    roles = tuple(
        RoleProgram(
            own.role,
            {
                stream: [lasting(step, number, shape, column) for step in steps]
                for stream, steps in own.streams.items()
            },
        )
        for number, own in enumerate(program.roles)
    )
    transfers = tuple(
        resized(transfer, column[shape.transfer_parameter(row) :][:2].tolist())
        for transfer, row in zip(program.transfers, shape.class_of_transfer, strict=True)
    )
    return FoldedProgram(roles=roles, transfers=transfers, links=program.links)


def lasting(step: Step, role: int, shape: Shape, column: Floats) -> Step:
    """A computation that takes device, host, lead and wait beyond device from a column."""
    if not isinstance(step, ComputeStep):
        return step
    first = shape.compute_parameter(shape.class_of_computation[role, step.index])
    device, host, gap, wait = column[first : first + 4].tolist()
    wait = device + wait if step.cost.duration.waits else -inf
    cost = step.cost._replace(duration=Duration(device, host, device + gap, wait))
    return replace(step, cost=cost, items=(), links=())


def resized(transfer: Transfer, durations: Sequence[float]) -> Transfer:
    """A transfer with so much latency and so many seconds on its links, if it is on any."""
    latency, seconds = durations
    traffic = transfer.traffic
    ratio = seconds / traffic.seconds if traffic.seconds else 1.0
    sized = replace(traffic, latency=latency, size=traffic.size * ratio, seconds=seconds)
    return replace(transfer, traffic=sized)


def test_chunks_of_columns_change_nothing():
    replay = ColumnProgram(random_program(3))
    columns = replay.parameters[:, None] * np.linspace(0.7, 1.4, 700)
    assert replay.times(columns)[600:].tolist() == replay.times(columns[:, 600:]).tolist()


def test_all_durations_doubled_double_the_step():
    replay = ColumnProgram(folded(dict(pp=4, microbatches=8, style="overlapped")))
    assert replay.time(2.0 * replay.parameters) == pytest.approx(2.0 * replay.time())


def test_programs_of_one_shape_share_a_graph():
    plan = dict(pp=4, microbatches=8, style="overlapped")
    usual, slower = (ColumnProgram(folded(dict(plan, forward=f))) for f in (1e-3, 1.3e-3))
    assert usual.compiled is slower.compiled
    assert usual.time() < slower.time()


def test_durations_far_from_the_first_ones_still_agree_with_the_clock():
    plan = dict(pp=4, microbatches=8, style="overlapped", boundary=1e4)
    for forward in (1e-3, 1e-1, 1e-5):
        program = folded(dict(plan, forward=forward))
        assert ColumnProgram(program).time() == pytest.approx(play(program).end, **EXACT)


def test_replicas_meet_at_joint_transfers():
    shared = transfer("T", latency=1.0)
    steps = work(0, 2.0), CommunicateStep(1, "gradients", (0,)), work(2, 3.0)
    replay = ColumnProgram(alone(*steps, transfers=(shared,)), joint=frozenset((0,)))
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
    replay = as_clocked(program)
    assert replay.time() == pytest.approx(play(program).end, **EXACT)
    assert ColumnProgram(program).time() < replay.time()


def off(boundary: float, spread: float, count: int) -> tuple[float, float]:
    """How far replay is off on columns spread by so much, in the mean and at worst."""
    replay = as_clocked(folded(dict(BUSY, boundary=boundary)))
    noise = np.random.default_rng(0).lognormal(0.0, spread, (len(replay.parameters), count))
    columns = replay.parameters[:, None] * noise
    clocked = clocked_times(with_durations(replay, column) for column in columns.T)
    return errors(replay.times(columns), clocked)


def test_an_approximation_that_is_good_enough_passes():
    mean, worst = off(1e6, 0.01, 20)
    assert abs(mean) <= worst < 0.01


def test_an_approximation_that_is_no_good_is_refused():
    with pytest.raises(InputError, match="--engine clock"):
        off(4e8, 1.0, 20)
