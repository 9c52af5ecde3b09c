"""Accounts add up, and the bubble is the one of the papers."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine.accounts import accounts, bubble_fraction, critical_role
from sim.engine.clock import play
from sim.engine.fold import fold
from sim.engine.tracks import COMMUNICATION, Track
from sim.parallel.schedule import table
from sim.program.causes import COMPUTE, DATA, HOST, PIPELINE
from tests.engine.programs import machine, training, undisturbed
from tests.engine.random_programs import random_program

SILENT = dict(layers=1, boundary=0.0, gradients=0.0, overlap=False, host=0.0)


def bubble(pp: int, microbatches: int, chunks: int = 1, **options) -> float:
    """Of equal stages whose messages take no time."""
    program = training(pp=pp, microbatches=microbatches, chunks=chunks, **(SILENT | options))
    silent = undisturbed(machine("h100-p5-efa", pp), latency=0.0, bandwidth=math.inf)
    record = play(fold(program, silent))
    return bubble_fraction(record, accounts(record))


@pytest.mark.parametrize("style", ["batched", "async-send", "overlapped"])
@pytest.mark.parametrize(("pp", "m"), [(1, 4), (2, 4), (4, 4), (4, 16), (8, 64)])
def test_bubble_of_one_f_one_b_is_the_closed_form(pp, m, style):
    assert bubble(pp, m, style=style) == pytest.approx((pp - 1) / (m + pp - 1), abs=1e-9)


@pytest.mark.parametrize("style", ["async-send", "overlapped"])
@pytest.mark.parametrize(("pp", "m", "v"), [(2, 4, 2), (4, 8, 2), (4, 8, 3), (8, 16, 4)])
def test_bubble_of_interleaving_is_the_closed_form(pp, m, v, style):
    expected = (pp - 1) / (v * m + pp - 1)
    assert bubble(pp, m, v, style=style) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", [name for name, own in table().items() if own.bubble])
def test_bubbles_of_the_table_are_those_of_the_step(name):
    own, pp, m = table()[name], 4, 16
    chunks = own.chunks or 2
    shown = bubble(pp, m, chunks, schedule=name, style="overlapped")
    assert own.bubble is not None
    assert shown == pytest.approx(own.bubble(pp, m, chunks), abs=1e-9)


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
    record = play(fold(training(**layout), machine("dgx-a100-hdr", gpus_on, slowdown=slowdown)))
    for account in accounts(record):
        assert sum(account.values()) == pytest.approx(record.end, rel=1e-9)
        assert all(seconds > 0 for seconds in account.values())


@given(st.integers(0, 10**9), st.booleans())
def test_accounts_are_the_same_whatever_the_order_of_streams(seed, shared):
    record = play(random_program(seed, shared=shared))
    turned = replace(record, tracks=record.tracks[::-1])
    for account, other in zip(accounts(record), accounts(turned), strict=True):
        assert account == pytest.approx(other)


def test_of_transfers_that_arrive_together_the_first_to_begin_is_waited_for():
    """A stage waits from 2 to 10 s for weights, and from 9 s on for its input too."""
    begun = {"receive": 9.0, "data": 2.0}
    record = play(fold(training(microbatches=1), machine("dgx-a100-hdr", 1)))
    kinds = {"receive": (PIPELINE, "send"), "data": (DATA, "all_gather")}
    computed = track("compute", (0.0, 2.0), (10.0, 11.0), parts=0)
    for streams in (("receive", "data"), ("data", "receive")):
        beside = [
            track(stream, (0.0, 10.0), transfer=number, begun=begun[stream])
            for number, stream in enumerate(streams)
        ]
        played = replace(
            record, tracks=(computed, *beside), parts=[{COMPUTE: 1.0}], end=11.0, passes_end=11.0,
            kinds=[kinds[stream] for stream in streams],
        )  # fmt: skip
        assert accounts(played) == [{COMPUTE: 2.0, HOST: 1.0, DATA: 8.0}]


def track(
    stream: str,
    *spans: tuple[float, float],
    parts: int = COMMUNICATION,
    transfer: int = -1,
    begun: float = math.nan,
) -> Track:
    """Steps of one stream, each with this transfer."""
    start, end = np.array(spans).T
    columns = (len(spans), 1)
    return Track(
        role=0, stream=stream, start=start, end=end, parts=np.full(len(spans), parts),
        transfers=np.full(columns, transfer), begun=np.full(columns, begun), arrived=end[:, None],
        actions=np.full((len(spans), 3), -1),
    )  # fmt: skip


def test_without_stragglers_nothing_waits_for_them():
    record = play(fold(training(tp=2, dp=4, pp=2), machine("dgx-a100-hdr", 16)))
    assert all("stragglers" not in account for account in accounts(record))


def test_replicas_wait_for_the_slow_one():
    program = training(dp=4, microbatches=8, overlap=False)
    record = play(fold(program, machine("dgx-a100-hdr", 4, slowdown={2: 1.5})))
    spent = {role.first_rank: a for role, a in zip(record.roles, accounts(record), strict=True)}
    # Eight microbatches of 2 layers at 3 ms, half as long again on the slow rank.
    assert spent[0]["stragglers"] == pytest.approx(0.5 * 8 * 2 * 3e-3, rel=1e-6)
    assert "stragglers" not in spent[2]


def test_the_critical_role_is_the_lowest_of_those_that_end_last():
    record = play(fold(training(pp=4), machine("dgx-a100-hdr", 4)))
    assert critical_role(record).first_rank == 0
