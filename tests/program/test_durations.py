"""The law of launched work is exact: work in a row ends when its kernels would, one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.program.durations import READ, Duration

times = st.floats(0, 10)
kernels = st.lists(st.tuples(times, times, st.booleans()), min_size=1, max_size=8)


def one_by_one(row, ready, host_free):
    """Launch after launch: a kernel starts at the later of stream free and launched; where the host
    reads its result, it goes on no sooner than that."""
    for device, host, reads in row:
        host_free += host
        ready = max(ready, host_free) + device
        host_free = ready if reads else host_free
    return ready, host_free


def in_a_row(row):
    whole = Duration()
    for device, host, reads in row:
        whole = whole.then(Duration(device, host, host + device))
        whole = whole.then(READ) if reads else whole
    return whole


@given(kernels, times, times)
def test_durations_add_up_like_kernels_launched_one_by_one(row, ready, host_free):
    whole, (end, launched) = in_a_row(row), one_by_one(row, ready, host_free)
    assert whole.end(ready, host_free) == pytest.approx(end)
    assert whole.launched(ready, host_free) == pytest.approx(launched)


@given(kernels, kernels, kernels)
def test_durations_may_be_joined_in_any_grouping(first, second, third):
    one, two, three = in_a_row(first), in_a_row(second), in_a_row(third)
    assert one.then(two).then(three) == pytest.approx(one.then(two.then(three)))


@given(kernels)
def test_a_host_that_launches_in_no_time_may_read_results_for_nothing(row):
    quick = [(device, 0.0, reads) for device, _, reads in row]
    deaf = [(device, 0.0, False) for device, *_ in row]
    assert in_a_row(quick).device == pytest.approx(in_a_row(deaf).device)


@given(kernels, times, times)
def test_reading_results_never_ends_work_sooner(row, ready, host_free):
    deaf = [(device, host, False) for device, host, _ in row]
    reading = in_a_row(row).end(ready, host_free)
    assert reading >= in_a_row(deaf).end(ready, host_free) - 1e-9


@given(times, times, times, st.booleans(), st.integers(0, 9))
def test_equal_work_in_a_row_is_that_work_so_many_times(device, host, more, reads, count):
    work = Duration(device, host, max(device, host) + more)
    work = work.then(READ) if reads else work
    whole = Duration()
    for _ in range(count):
        whole = whole.then(work)
    assert work.repeated(count) == pytest.approx(whole)


def test_a_slow_device_stretches_kernels_but_not_launches():
    assert Duration(device=2.0, host=1.0, lead=2.5).slowed(1.5)[:3] == (3.0, 1.0, 3.5)


def test_a_collective_beside_a_longer_kernel_costs_nothing():
    assert Duration(3.0, 0.0, 3.0).beside(2.0).device == 3.0


def test_a_collective_beside_a_shorter_kernel_ends_last():
    assert Duration(3.0, 0.0, 3.0).beside(5.0).device == 5.0


def test_a_collective_takes_its_share_of_the_kernels_pace_while_it_lasts():
    alone = Duration(3.0, 0.0, 3.0)
    # 2 s at three quarters of the pace, then alone.
    assert alone.beside(2.0, 0.25).device == pytest.approx(1.5 / 0.75 + 1.5)
    # The kernels take 4 s beside it and are hidden.
    assert alone.beside(5.0, 0.25).device == 5.0


def test_interference_never_costs_more_than_one_after_the_other():
    for seconds in (0.5, 3.0, 4.0, 8.0):
        for share in (0.0, 0.3, 0.9):
            both = Duration(3.0, 0.0, 3.0).beside(seconds, share)
            assert max(3.0, seconds) <= both.device <= 3.0 + seconds
