"""Composition in time is exact: one step for many kernels ends when they would."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.engine.compose import Span, span_of
from sim.program import Segment

times = st.floats(0, 10)
kernels = st.lists(st.tuples(times, times), min_size=1, max_size=8)


def one_by_one(kernels, ready, free):
    """Launch after launch: a kernel starts at the later of stream free and launched."""
    for device, host in kernels:
        free += host
        ready = max(ready, free) + device
    return ready, free


@given(kernels, times, times)
def test_spans_compose_like_kernels_launched_one_by_one(kernels, ready, free):
    whole = Span()
    for device, host in kernels:
        whole = whole.then(Span(device, host, host + device, {"compute": device}))
    end, host_end = one_by_one(kernels, ready, free)
    assert max(ready + whole.device, free + whole.lead) == pytest.approx(end)
    assert free + whole.host == pytest.approx(host_end)


@given(kernels)
def test_parts_add_up_to_the_device_time(kernels):
    whole = Span()
    for device, host in kernels:
        whole = whole.then(Span(device, host, host + device, {"compute": device}))
    assert sum(whole.parts.values()) == pytest.approx(whole.device)


def test_a_collective_beside_a_longer_kernel_costs_nothing():
    span = Span(3.0, 0.0, 3.0, {"compute": 3.0}).beside("tensor communication", 2.0)
    assert (span.device, span.parts) == (3.0, {"compute": 3.0})


def test_a_collective_beside_a_shorter_kernel_is_exposed_for_the_rest():
    span = Span(3.0, 0.0, 3.0, {"compute": 3.0}).beside("tensor communication", 5.0)
    assert span.device == 5.0
    assert span.parts == {"compute": 3.0, "tensor communication": 2.0}


def test_a_slow_device_stretches_kernels_but_not_launches():
    segment = Segment(name="a", cause="compute", device=2.0, host=1.0, lead=2.5)
    slow = span_of(segment, 1.5)
    assert (slow.device, slow.host, slow.lead) == (3.0, 1.0, 3.5)


def test_a_collective_takes_its_share_of_the_kernels_pace_while_it_lasts():
    alone = Span(3.0, 0.0, 3.0, {"compute": 3.0})
    span = alone.beside("tensor communication", 2.0, 0.25)
    assert span.device == pytest.approx(1.5 / 0.75 + 1.5)  # 2 s at three quarters, then alone
    assert span.parts == pytest.approx({"compute": 3.0, "tensor communication": 0.5})
    within = alone.beside("tensor communication", 5.0, 0.25)
    assert within.device == 5.0  # the kernels take 4 s beside it and are hidden


def test_interference_never_costs_more_than_one_after_the_other():
    for seconds in (0.5, 3.0, 4.0, 8.0):
        for share in (0.0, 0.3, 0.9):
            span = Span(3.0, 0.0, 3.0, {"compute": 3.0}).beside("c", seconds, share)
            assert max(3.0, seconds) <= span.device <= 3.0 + seconds
