"""Kernels in a row: device and host time add up, the lead is what the host must be ahead."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.model.kernels import MemoryBound, Overlap
from sim.parallel.segments import blocked, segments
from sim.program.causes import COMPUTE, TENSOR
from sim.program.operations import Collective, Segment

CALL = Collective(kind="all_reduce", axes=("tp",), bytes=8.0, name="t", cause=TENSOR)


def joined(items, launch=1.0):
    return segments(
        items,
        name="x",
        cause=COMPUTE,
        time=lambda kernel: kernel.bytes,
        launch=launch,
        call=lambda call: 0.5,
    )


def kernel(seconds: float) -> MemoryBound:
    return MemoryBound(name="k", bytes=seconds)


@given(st.lists(st.floats(0, 10), min_size=1, max_size=6), st.floats(0.01, 5))
def test_a_segment_holds_all_kernels_between_collectives(times, launch):
    (segment,) = joined([kernel(t) for t in times], launch)
    assert segment.device == pytest.approx(sum(times))
    assert segment.host == pytest.approx(launch * len(times))
    # The device is idle: kernel i starts at the later of its launch and the kernel before it.
    clock = 0.0
    for number, seconds in enumerate(times, 1):
        clock = max(clock, number * launch) + seconds
    assert segment.lead == pytest.approx(clock)


def test_a_collective_cuts_and_is_launched_by_the_host():
    first, call, last = joined([kernel(2.0), CALL, kernel(3.0)])
    assert call is CALL
    assert (first.device, first.host, last.device) == (2.0, 1.5, 3.0)


def test_a_collective_beside_kernels_belongs_to_their_segment():
    items = joined([kernel(1.0), Overlap(collective=CALL, kernels=(kernel(4.0),)), kernel(2.0)])
    beside = (replace(CALL, beside=4.0),)
    assert [item.beside for item in items if isinstance(item, Segment)] == [(), beside, ()]


def test_nothing_gives_nothing():
    assert joined([]) == ()


@given(st.lists(st.floats(0, 10), min_size=1, max_size=6), st.floats(0.01, 5))
def test_a_host_that_waits_for_every_kernel_adds_its_seconds_to_the_device_s(times, launch):
    (segment,) = blocked(joined([kernel(t) for t in times], launch))
    assert segment.device == pytest.approx(sum(times) + launch * len(times))
    assert segment.lead == segment.device
    assert segment.host == 0.0
