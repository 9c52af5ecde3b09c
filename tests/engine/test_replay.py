"""Replay is the clock without a clock: equal to 1e-9 wherever no two transfers contend."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sim.config.errors import InputError
from sim.engine.accounts import accounts
from sim.engine.clock import play
from sim.engine.fold import fold
from sim.engine.folded import LinkClass, Meet, Part, Pass, Score, Transfer
from sim.engine.replay import Replay, with_parameters
from sim.engine.replay_contention import check, clocked_factors, contended, prepared
from sim.engine.replay_timeline import replay
from sim.engine.timeline import Role
from tests.engine.programs import machine, training
from tests.engine.scores import random_score

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


def folded(plan: dict) -> Score:
    plan = {"tp": 1, "dp": 1, **plan}
    if plan["pp"] == 1 or plan["microbatches"] % plan["pp"]:
        plan["chunks"] = 1
    return fold(training(**plan), machine("dgx-a100-hdr", plan["tp"] * plan["dp"] * plan["pp"]))


def one_role(*steps: Pass | Meet, transfers: tuple[Transfer, ...] = ()) -> Score:
    role = Role(index=0, name="role", stage=0, ranks=1, first_rank=0)
    part = Part(role, {"compute": list(steps)})
    return Score(parts=(part,), transfers=transfers, links=(LinkClass("link", 1, 1.0),))


def work(index: int, device: float, *, host: float = 0.0, sync: bool = False) -> Pass:
    parts = (("compute", device),)
    return Pass(index, f"P{index}", device, host, host + device, parts, sync=sync)


# --- By hand --------------------------------------------------------------------------------------


def test_passes_in_a_row_add_up():
    assert Replay(one_role(work(0, 1.0), work(1, 2.0))).time() == 3.0


def test_a_slow_host_is_what_a_chain_of_short_passes_waits_for():
    steps = [work(i, 0.5, host=2.0) for i in range(3)]
    assert Replay(one_role(*steps)).time() == 2.0 + 2.0 + 2.0 + 0.5


def test_a_synchronised_host_launches_nothing_ahead():
    assert Replay(one_role(work(0, 3.0, sync=True), work(1, 1.0, host=1.0))).time() == 5.0
    assert Replay(one_role(work(0, 3.0), work(1, 1.0, host=1.0))).time() == 4.0


def test_ranks_that_wait_for_each_other_are_refused():
    alone = Transfer(
        name="T", cause="c", kind="send", arity=2, latency=0, size=0, loads=(), bytes=0, ranks=2
    )
    with pytest.raises(InputError, match="wait for each other"):
        Replay(one_role(Meet(0, "never", (0,)), transfers=(alone,))).time()


# --- The clock is the reference -------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(plan=plans)
def test_replay_equals_the_clock_on_random_plans(plan):
    score = folded(plan)
    compiled = Replay(score)
    assume(not contended(compiled))
    assert compiled.time() == pytest.approx(play(score).end, **EXACT)


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 10**9), roles=st.integers(1, 5), steps=st.integers(1, 60))
def test_replay_equals_the_clock_on_random_scores(seed, roles, steps):
    score = random_score(seed, roles=roles, steps=steps)
    assert Replay(score).time() == pytest.approx(play(score).end, **EXACT)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_no_contention_found_means_that_the_clock_finds_none(seed):
    score = random_score(seed, steps=12, shared=True)
    compiled = Replay(score)
    assume(not contended(compiled))
    assert compiled.time() == pytest.approx(play(score).end, **EXACT)
    assert clocked_factors(score) == {}


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_the_factors_of_a_clocked_run_give_its_time_back(seed):
    score = random_score(seed, shared=True)
    compiled = Replay(score, factors=clocked_factors(score))
    assert compiled.time() == pytest.approx(play(score).end, **EXACT)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_a_clocked_run_ends_with_its_last_span(seed):
    played = play(random_score(seed, shared=True))
    assert played.end == max(span.end for span in played.spans)


@pytest.mark.parametrize("style", ["batched", "async-send", "overlapped"])
def test_the_replayed_timeline_is_the_clocks(style):
    score = folded(dict(tp=2, dp=2, pp=4, microbatches=8, chunks=2, style=style))
    clocked, (replayed, _) = play(score), replay(score)
    found = {(s.role, s.stream, s.name): s for s in replayed.spans}
    assert len(found) == len(clocked.spans)
    for span in clocked.spans:
        other = found[span.role, span.stream, span.name]
        assert (other.start, other.end) == pytest.approx((span.start, span.end), **EXACT)
    for one, other in zip(accounts(clocked), accounts(replayed), strict=True):
        assert one == pytest.approx(other, **EXACT)


# --- Columns --------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**9), spread=st.sampled_from((0.01, 0.3, 2.0)))
def test_a_column_is_the_clock_with_its_durations(seed, spread):
    score = random_score(seed)
    compiled = Replay(score)
    noise = np.random.default_rng(seed).lognormal(0.0, spread, (len(compiled.parameters), 5))
    columns = compiled.parameters[:, None] * noise
    times = compiled.times(columns)
    for i, time in enumerate(times):
        alone = compiled.time(columns[:, i].copy())
        other = with_parameters(score, compiled.shape, columns[:, i])
        assert time == pytest.approx(alone, **EXACT)
        assert time == pytest.approx(play(other).end, **EXACT)


def test_chunks_of_columns_change_nothing():
    compiled = Replay(random_score(3))
    columns = compiled.parameters[:, None] * np.linspace(0.7, 1.4, 700)
    assert compiled.times(columns)[600:].tolist() == compiled.times(columns[:, 600:]).tolist()


def test_all_durations_doubled_double_the_step():
    compiled = Replay(folded(dict(pp=4, microbatches=8, style="overlapped")))
    assert compiled.time(2.0 * compiled.parameters) == pytest.approx(2.0 * compiled.time())


def test_scores_of_one_shape_share_a_graph():
    plan = dict(pp=4, microbatches=8, style="overlapped")
    one, other = (Replay(folded(dict(plan, forward=f))) for f in (1e-3, 1.3e-3))
    assert one.compiled is other.compiled
    assert one.time() < other.time()


def test_durations_far_from_the_first_ones_still_agree_with_the_clock():
    plan = dict(pp=4, microbatches=8, style="overlapped", boundary=1e4)
    for forward in (1e-3, 1e-1, 1e-5):
        score = folded(dict(plan, forward=forward))
        assert Replay(score).time() == pytest.approx(play(score).end, **EXACT)


def test_replicas_meet_at_joint_transfers():
    shared = Transfer(
        name="T", cause="c", kind="all_reduce", arity=1, latency=1.0, size=0, loads=(), bytes=0,
        ranks=2,
    )  # fmt: skip
    score = one_role(work(0, 2.0), Meet(1, "gradients", (0,)), work(2, 3.0), transfers=(shared,))
    compiled = Replay(score, joint=frozenset((0,)))
    columns = compiled.parameters[:, None] * np.ones(4)
    first = compiled.shape.pass_parameter(compiled.shape.class_of_pass[0, 0])
    columns[first] = [2.0, 5.0, 1.0, 1.0]
    assert compiled.times(columns, group=2).tolist() == [9.0, 9.0, 5.0, 5.0]
    assert compiled.times(columns).tolist() == [6.0, 9.0, 5.0, 5.0]


# --- Contention -----------------------------------------------------------------------------------

BUSY = dict(tp=1, pp=4, dp=2, microbatches=8, chunks=2, style="overlapped", boundary=4e7)


def test_contention_is_said_and_taken_from_the_clock():
    score = folded(BUSY)
    compiled, approximate = prepared(score)
    assert approximate
    assert compiled.time() == pytest.approx(play(score).end, **EXACT)
    assert Replay(score).time() < compiled.time()


def test_an_approximation_that_is_good_enough_passes_the_check():
    compiled, _ = prepared(folded(dict(BUSY, boundary=1e6)))
    noise = np.random.default_rng(0).lognormal(0.0, 0.01, (len(compiled.parameters), 100))
    assert check(compiled, compiled.parameters[:, None] * noise) < 0.01


def test_an_approximation_that_is_no_good_is_refused():
    compiled, _ = prepared(folded(dict(BUSY, boundary=4e8)))
    noise = np.random.default_rng(0).lognormal(0.0, 1.0, (len(compiled.parameters), 20))
    with pytest.raises(InputError, match="--engine clock"):
        check(compiled, compiled.parameters[:, None] * noise)


def test_links_that_are_only_half_used_contend_with_nobody():
    def score(share: float) -> Score:
        transfers = tuple(
            Transfer(name=f"T{i}", cause="c", kind="send", arity=1, latency=0.0, size=1.0,
                     loads=((i, 1.0), (2, share)), bytes=1.0, ranks=2)
            for i in range(2)
        )  # fmt: skip
        steps = [Meet(0, "both", (0, 1))]
        whole = one_role(*steps, transfers=transfers)
        return Score(parts=whole.parts, transfers=transfers,
                     links=tuple(LinkClass(f"link {i}", 1, 1.0) for i in range(3)))  # fmt: skip

    assert not contended(Replay(score(0.5)))
    assert contended(Replay(score(0.6)))
