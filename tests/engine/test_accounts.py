"""Accounts add up, and the bubble is the one of the papers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine.accounts import accounts, bubble_fraction, critical_role
from sim.engine.clock import play
from sim.engine.fold import fold
from tests.engine.programs import machine, training

SILENT = dict(layers=1, boundary=0.0, gradients=0.0, overlap=False, host=0.0)


def bubble(pp: int, microbatches: int, chunks: int = 1, **options) -> float:
    """Of equal stages without communication."""
    program = training(pp=pp, microbatches=microbatches, chunks=chunks, **(SILENT | options))
    timeline = play(fold(program, quiet(pp)))
    return bubble_fraction(timeline, accounts(timeline))


def quiet(gpus: int):
    """A machine whose messages take no time."""
    from sim.collectives.interconnect import CallCost
    from sim.engine.machine import Machine

    class Nothing:
        def call_cost(self, kind, size, shape, interconnect):
            return CallCost(latency=0.0)

    return Machine(machine("h100-p5-efa", gpus).topology, Nothing())


@pytest.mark.parametrize("style", ["batched", "async-send", "overlapped"])
@pytest.mark.parametrize(("pp", "m"), [(1, 4), (2, 4), (4, 4), (4, 16), (8, 64)])
def test_bubble_of_one_f_one_b_is_the_closed_form(pp, m, style):
    assert bubble(pp, m, style=style) == pytest.approx((pp - 1) / (m + pp - 1), abs=1e-9)


@pytest.mark.parametrize("style", ["async-send", "overlapped"])
@pytest.mark.parametrize(("pp", "m", "v"), [(2, 4, 2), (4, 8, 2), (4, 8, 3), (8, 16, 4)])
def test_bubble_of_interleaving_is_the_closed_form(pp, m, v, style):
    expected = (pp - 1) / (v * m + pp - 1)
    assert bubble(pp, m, v, style=style) == pytest.approx(expected, abs=1e-9)


layouts = st.fixed_dictionaries(
    {
        "tp": st.sampled_from([1, 2, 4]),
        "dp": st.sampled_from([1, 2, 4]),
        "pp": st.sampled_from([1, 2, 4]),
        "style": st.sampled_from(["batched", "async-send", "overlapped"]),
        "overlap": st.booleans(),
        "host": st.sampled_from([0.0, 1e-3]),
        "order": st.sampled_from([("tp", "dp", "pp"), ("tp", "pp", "dp")]),
    }
)


@settings(max_examples=30, deadline=None)
@given(layouts, st.sampled_from([{}, {0: 1.7}]))
def test_every_account_adds_up_to_the_step(layout, slowdown):
    gpus = layout["tp"] * layout["dp"] * layout["pp"]
    gpus_on = gpus if gpus <= 8 else max(gpus, 8)
    timeline = play(fold(training(**layout), machine("dgx-a100-hdr", gpus_on, slowdown=slowdown)))
    for account in accounts(timeline):
        assert sum(account.values()) == pytest.approx(timeline.end, rel=1e-9)
        assert all(seconds > 0 for seconds in account.values())


def test_without_stragglers_nothing_waits_for_them():
    timeline = play(fold(training(tp=2, dp=4, pp=2), machine("dgx-a100-hdr", 16)))
    assert all("stragglers" not in account for account in accounts(timeline))


def test_replicas_wait_for_the_slow_one():
    program = training(dp=4, microbatches=8, overlap=False)
    timeline = play(fold(program, machine("dgx-a100-hdr", 4, slowdown={2: 1.5})))
    spent = {role.first_rank: a for role, a in zip(timeline.roles, accounts(timeline), strict=True)}
    # Eight microbatches of 2 layers at 3 ms, half as long again on the slow rank.
    assert spent[0]["stragglers"] == pytest.approx(0.5 * 8 * 2 * 3e-3, rel=1e-6)
    assert "stragglers" not in spent[2]


def test_the_critical_role_is_the_lowest_of_those_that_end_last():
    timeline = play(fold(training(pp=4), machine("dgx-a100-hdr", 4)))
    assert critical_role(timeline).first_rank == 0
