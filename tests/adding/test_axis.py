"""A mesh axis is one file; its size stands in a plan's `axes`, or in an option of the search."""

import pytest

from tests.adding.conftest import Add
from tests.adding.walk import planned, played, usual

SOURCE = '''
"""An axis of one's own."""

from sim.parallel.mesh import Axis

AXES = (Axis(name="{name}", divides="{divides}", place={place}, shards_states=True),)
'''


@pytest.mark.few(1)
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_an_axis_that_divides_the_sequence_is_context_parallelism(add: Add, zero: int) -> None:
    own = SOURCE.format(name="segments", divides="sequence", place=20)
    add("sim.parallel.axes", "segments", own)
    mine = played({"plan.axes": {"segments": 2}, "plan.zero": zero})
    packaged = usual({"plan.cp": 2, "plan.zero": zero})
    assert mine.step_time == pytest.approx(packaged.step_time, rel=1e-9)
    assert mine.memory_per_gpu == pytest.approx(packaged.memory_per_gpu, rel=1e-12)


@pytest.mark.few(1)
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_an_axis_that_divides_the_batch_sums_gradients(add: Add, zero: int) -> None:
    add("sim.parallel.axes", "islands", SOURCE.format(name="islands", divides="batch", place=35))
    mine = played({"plan.axes": {"islands": 2}, "plan.dp": 2, "plan.zero": zero})
    packaged = usual({"plan.dp": 4, "plan.zero": zero})
    assert mine.step_time == pytest.approx(packaged.step_time, rel=1e-9)
    assert mine.memory_per_gpu == pytest.approx(packaged.memory_per_gpu, rel=1e-12)


def test_an_axis_is_searched(add: Add) -> None:
    add("sim.parallel.axes", "islands", SOURCE.format(name="islands", divides="batch", place=35))
    best = planned("--only", "islands=2", "--only", "pp=1", "--only", "tp=1,2")
    assert {layout["plan"]["axes"]["islands"] for layout in best} == {2}
    assert {layout["ranks"] for layout in best} == {8}
