"""The bars of a comparison are its numbers."""

import pytest
from matplotlib.axes import Axes

import sim
from sim.analysis.comparison.steps import StepComparison
from sim.interface.plots.picture import PALETTE


@pytest.fixture(scope="module")
def both() -> StepComparison:
    """A job, and the same of twice the batch on GPUs that are too small for it."""
    other = {"plan.global_batch": 1024, "device.memory": "8 GiB"}
    found = sim.compare({"one": "megatron-1.7b", "two": sim.load("megatron-1.7b", other)})
    assert isinstance(found, StepComparison)
    return found


def lengths(axes: Axes) -> list[float]:
    """Of the bar in each row."""
    rows = [bar for own in axes.containers for bar in enumerate(own.patches)]  # type: ignore[attr-defined]
    return [sum(bar.get_width() for row, bar in rows if row == n) for n in (0, 1)]


def test_bars_are_as_long_as_the_steps_and_as_the_memory(both: StepComparison) -> None:
    left, right = both.plot("bars").axes
    assert lengths(left) == pytest.approx(both.seconds, rel=1e-9)
    frame = both.to_frame()
    assert lengths(right) == pytest.approx(list(frame["memory"] / 2**30), rel=1e-9)
    assert both.seconds[1] == pytest.approx(frame["step_time"].iloc[1] / 2)  # as many tokens


def test_what_does_not_fit_is_told_by_its_colour(both: StepComparison) -> None:
    right = both.plot("bars").axes[1]
    assert [text.get_color() for text in right.texts] == [PALETTE[6], PALETTE[1]]


def test_every_part_that_can_be_seen_has_a_name(both: StepComparison) -> None:
    left = both.plot("bars").axes[0]
    legend = left.get_legend()
    assert legend is not None
    named = {text.get_text() for text in legend.get_texts()}
    assert {"compute", "recompute", "optimizer"} <= named
    assert not any(name.startswith("_") for name in named)
