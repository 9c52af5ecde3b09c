"""What operators take the host: of calls that were timed, and of traces."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sim.analysis.calibration.fitting.device_profile import host_table
from sim.analysis.calibration.fitting.device_profile import traced as medians
from sim.analysis.calibration.timing.host_times import HostTime, quickest
from sim.hardware.kernels.dispatch import OperatorTime
from sim.jobs.traces.kineto import events_of
from sim.jobs.traces.kineto_operators import host_calls
from tests.jobs.traces.synthetic import LAUNCH, Machine


def call(operators: Mapping[str, int], seconds: float, **more: Any) -> HostTime:
    given = {"name": " ".join(operators), "phase": "forward", **more}
    return HostTime(operators=operators, seconds=seconds, **given)


def seconds(found: tuple[OperatorTime, ...]) -> dict[str, float]:
    return {one.operator: one.seconds for one in found}


def test_what_is_known_is_taken_off_and_the_rest_divided_evenly() -> None:
    calls = [call({"view": 1}, 1.0), call({"view": 3, "mm": 2}, 9.0)]
    found = host_table([*calls, call({"mm": 1, "a": 1, "b": 3}, 7.0)])
    assert seconds(found) == {"view": 1.0, "mm": 3.0, "a": 1.0, "b": 1.0}


def test_operators_of_a_call_add_up_to_it() -> None:
    found = seconds(host_table([call({"mul": 1}, 2.0), call({"mul": 2, "sum": 1, "cat": 2}, 10.0)]))
    assert 2 * found["mul"] + found["sum"] + 2 * found["cat"] == pytest.approx(10.0)


def test_what_nothing_is_left_for_stays_unknown() -> None:
    assert seconds(host_table([call({"mul": 1}, 2.0), call({"mul": 2, "sum": 1}, 3.0)])) == {
        "mul": 2.0
    }


def test_phases_are_apart() -> None:
    found = host_table([call({"mm": 1}, 2.0), call({"mm": 2}, 10.0, phase="backward")])
    assert [(one.phase, one.seconds) for one in found] == [("forward", 2.0), ("backward", 5.0)]


def test_tensors_are_paid_for_by_operators_on_lists() -> None:
    norm, stack = host_table([call({"_foreach_norm": 2, "stack": 1}, 3.0, each=0.5)])
    assert (norm.of(10), stack.of(10)) == (1.0 + 2.5, 1.0)


def test_of_several_passes_the_quickest_counts() -> None:
    found = quickest([call({"mm": 1}, 2.0), call({"mm": 1}, 1.0), call({"mm": 1}, 3.0)])
    assert [one.seconds for one in found] == [1.0]


def traced(path: Path) -> tuple[OperatorTime, ...]:
    return medians(host_calls(events_of(path)))


ENGINE = "autograd::engine::evaluate_function: MmBackward0"


def traced_step(machine: Machine) -> None:
    """A product, forward in 20 us behind 10 us of Python, its two backward, a step of an optimizer
    that waits for the device."""
    for _ in range(2):
        machine.think(10.0)
        launches(machine, ("aten::linear", "aten::mm"), 20.0)
    launches(machine, (ENGINE, "MmBackward0", "aten::mm"), 8.0)
    machine.think(4.0)
    launches(machine, (ENGINE, "MmBackward0", "aten::mm"), 8.0)
    begin = machine.now
    machine.synchronize()
    machine.think(1.0)
    launches(machine, ("aten::contiguous", "aten::clone", "aten::copy_"), 30.0)
    machine.add("user_annotation", "Optimizer.step#SGD.step", begin, machine.now - begin, tid=1)


def launches(machine: Machine, names: tuple[str, ...], us: float) -> None:
    for name in names:
        machine.op(name, us)
    machine.launch(500.0)
    machine.think(us - LAUNCH)


def test_a_trace_tells_what_operators_took_with_what_lies_before_them(tmp_path: Path) -> None:
    machine = Machine()
    traced_step(machine)
    path = machine.write(tmp_path / "trace.json")
    found = {(one.operator, one.phase): one for one in traced(path)}
    assert {key: one.calls for key, one in found.items()} == {
        ("mm", "forward"): 2, ("mm", "backward"): 2, ("clone", "optimizer"): 1,
    }  # fmt: skip
    expected = {"forward": (20e-6 + 30e-6) / 2, "backward": (8e-6 + 12e-6) / 2}  # first: alone
    for phase, median in expected.items():
        assert found["mm", phase].seconds == pytest.approx(median)  # type: ignore[index]
    assert found["clone", "optimizer"].seconds == pytest.approx(31e-6)  # without the wait


@pytest.mark.parametrize(
    ("around", "phase"), [(ENGINE, "backward"), ("Optimizer.step#SGD.step", "optimizer")]
)
def test_what_a_trace_begins_with_counts_alone_in_any_phase(
    tmp_path: Path, around: str, phase: str
) -> None:
    machine = Machine(start=6e15)  # us since 1970, or so
    launches(machine, (around, "aten::nll_loss_backward"), 24.0)
    (one,) = traced(machine.write(tmp_path / "trace.json"))
    assert (one.operator, one.phase) == ("nll_loss_backward", phase)
    assert one.seconds == pytest.approx(24e-6)


def test_a_trace_of_a_cpu_has_no_host_of_its_own() -> None:
    assert not traced(Path(__file__).parents[3] / "jobs/traces/recorded/ddp-0-of-2.json.gz")
