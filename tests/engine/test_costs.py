"""Costs of work: durations in a row, and causes that add up to the device's time."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.engine.costs import Cost, Costs, Losses
from sim.program.causes import COMPUTE, RECOMPUTE, TENSOR
from sim.program.durations import Duration
from sim.program.operations import Beside, Collective, Segment, Work

times = st.floats(0, 10)


def segment(device: float, host: float = 0.0, *, again: bool = False, calls: int = 0) -> Segment:
    cause = RECOMPUTE if again else COMPUTE
    beside, kernels = (CALL,) * calls, {"gemm": device}
    made = Segment(name="kernels", cause=cause, device=0.0, beside=beside)
    return made.lasting(Duration(device, host, host + device), kernels)


CALL = Collective(kind="all_reduce", axes=("tp",), bytes=8.0, name="tensor", cause=TENSOR)


class Links:
    """A network on which every collective takes as long, and takes as much from products."""

    def __init__(self, seconds: float, loss: float = 0.0) -> None:
        self._seconds, self._loss = seconds, loss

    def seconds(self, call: Collective) -> float:
        return self._seconds

    at_once = seconds

    def losses(self, call: Collective) -> Losses:
        return {"gemm": 0.0 if call.quiet else self._loss, "stream": 0.0}


def cost(*items: Segment | Collective | Work, call: float = 2.0, interference: float = 0.0) -> Cost:
    return Costs(Links(call, interference)).of(Work(name="work", items=items))


rows = st.lists(
    st.builds(segment, times, times, again=st.booleans(), calls=st.integers(0, 1)) | st.just(CALL),
    min_size=1,
    max_size=6,
)


@given(rows, times, st.sampled_from([0.0, 0.3]))
def test_parts_add_up_to_the_device_time(items, call, interference):
    whole = cost(*items, call=call, interference=interference)
    assert sum(whole.parts.values()) == pytest.approx(whole.duration.device)


@given(rows, st.integers(1, 4))
def test_equal_work_in_a_row_is_counted_at_once(items, count):
    layer = Work(name="layer", items=tuple(items))
    together, apart = cost(*[layer] * count), cost(*items * count)
    assert together.duration == pytest.approx(apart.duration)
    assert together.parts == pytest.approx(apart.parts)


def test_a_collective_between_kernels_is_on_the_device_and_launched_before_it():
    whole = cost(segment(3.0, 1.0), CALL, segment(4.0, 1.0))
    assert whole.duration == Duration(device=9.0, host=2.0, lead=10.0)
    assert whole.parts == {COMPUTE: 7.0, TENSOR: 2.0}


def test_a_collective_beside_a_longer_kernel_costs_nothing():
    assert cost(segment(3.0, calls=1)).parts == {COMPUTE: 3.0}


def test_a_collective_beside_a_shorter_kernel_is_exposed_for_the_rest():
    whole = cost(segment(3.0, calls=1), call=5.0)
    assert whole.parts == {COMPUTE: 3.0, TENSOR: 2.0}


def test_what_kernels_lose_to_a_collective_is_its_share():
    whole = cost(segment(3.0, calls=1), interference=0.25)
    assert whole.parts == pytest.approx({COMPUTE: 3.0, TENSOR: 0.5})


def test_of_mixed_kernels_those_that_are_slowed_are():
    half = replace(segment(3.0, calls=1), kernels=(("gemm", 1.5), ("stream", 1.5)))
    assert cost(half, interference=0.5).duration.device == pytest.approx(3.5)


def test_work_loses_the_share_of_its_kernels_that_a_collective_beside_it_slows():
    mixed = (segment(2.0), CALL, replace(segment(4.0), kernels=(("stream", 4.0),)))
    work = Work(name="work", items=mixed, beside=(Beside(CALL),))
    alone, slowed = (Costs(Links(2.0, loss)).of(work) for loss in (0.0, 0.5))
    lost = slowed.duration.device - alone.duration.device
    assert lost == pytest.approx(2.0 * 0.5 * 2.0 / 8.0)


def test_kernels_lose_nothing_to_a_quiet_collective():
    quiet = replace(segment(3.0), beside=(replace(CALL, quiet=True),))
    assert cost(quiet, interference=0.25).parts == pytest.approx({COMPUTE: 3.0})


def test_slow_kernels_are_their_causes_and_collectives_are_as_fast_as_ever():
    slow = Costs(Links(2.0), slowdown=1.5).of(Work(name="w", items=(segment(2.0), CALL)))
    assert slow.parts == {COMPUTE: 3.0, TENSOR: 2.0}
