"""Which operators a call dispatches, and that each of the suite is timed; not how long it takes."""

from collections.abc import Iterator
from typing import Any

import pytest

from sim.analysis.calibration.timing import host_suite, host_times
from sim.analysis.calibration.timing.host_times import HostTime


@pytest.fixture(scope="module")
def found() -> Iterator[list[HostTime]]:
    pytest.importorskip("torch")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_times, "IN_A_ROW", 3)
        patch.setattr(host_times, "ORDERS", 2)
        patch.setattr(host_times, "REPEATS", 2)
        clock = iter(range(10**9))  # every look at it is a second later
        patch.setattr(host_times.time, "perf_counter", lambda: float(next(clock)))
        yield host_times.host_times("cpu")


def operators(found: list[HostTime], name: str, phase: str) -> Any:
    (own,) = (one.operators for one in found if (one.name, one.phase) == (name, phase))
    return own


def test_operators_of_a_call_are_those_that_a_recording_has(found: list[HostTime]) -> None:
    assert operators(found, "linear with bias", "forward") == {"view": 2, "addmm": 1}
    assert operators(found, "view", "forward") == {"view": 1}
    norm = operators(found, "layer norm", "forward")
    assert norm == {"native_layer_norm": 1}
    assert "scaled_dot_product_attention" in operators(found, "attention", "forward")


def test_counters_of_a_step_are_none_of_the_devices(found: list[HostTime]) -> None:
    """AdamW's numbers of steps lie on the host, but for those of its fused form."""
    assert operators(found, "AdamW, foreach", "optimizer")["_foreach_add_"] == 1
    assert operators(found, "AdamW, fused", "optimizer").keys() == {
        "_foreach_add_", "_fused_adamw_",
    }  # fmt: skip


def test_every_call_of_the_suite_is_timed_forward(found: list[HostTime]) -> None:
    names = [one.name for one in found if one.phase == "forward"]
    assert names == [one.name for one in host_suite.layers("cpu")]
    assert all(one.seconds == 1.0 for one in found if one.phase == "forward")


def test_a_backward_pass_is_as_long_as_its_own_beginning_on_a_clock_of_calls(
    found: list[HostTime],
) -> None:
    """A pass of one call takes as many looks at that clock as one of many: nothing is left."""
    backward = [one for one in found if one.phase == "backward"]
    assert len(backward) > len(host_suite.layers("cpu")) - 3  # a copy's is a view
    assert not any(one.seconds for one in backward)
