"""Curves of what is learnt, and bands of several runs."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from sim.interface.plots import loss
from sim.jobs.sharing.update_record import CurvePoint


def run(*points: tuple[float, float], accuracy: float | None = None) -> Any:
    curve = tuple(CurvePoint(x, 10 * x, y, 1e9 * x, accuracy) for x, y in points)
    return SimpleNamespace(curve=curve, method="m")


def test_a_band_is_the_lowest_median_and_highest_along_what_all_runs_have() -> None:
    runs = [run((1, 4), (3, 2)), run((2, 5), (4, 3)), run((0, 10), (5, 5))]
    along, low, middle, high = loss.band(runs, "seconds", "loss")
    assert (along[0], along[-1]) == (2.0, 3.0)
    assert np.allclose(low, np.interp(along, [1, 3], [4, 2]))
    assert np.allclose(middle, np.interp(along, [2, 4], [5, 3]))
    assert np.allclose(high, np.interp(along, [0, 5], [10, 5]))


def test_a_single_run_is_drawn_at_its_points() -> None:
    along, low, middle, high = loss.band([run((1, 4), (3, 2))], "samples", "loss")
    assert along.tolist() == [10.0, 30.0]
    assert low.tolist() == middle.tolist() == high.tolist() == [4.0, 2.0]


def test_right_answers_have_a_row_where_there_are_any() -> None:
    one, other = run((1, 4), (2, 3)), run((1, 4), (2, 3), accuracy=0.5)
    figures = [loss.figure([[one, one], [last]], names=["a", "b"]) for last in (one, other)]
    assert [len(figure.axes) for figure in figures] == [3, 6]
    assert [len(axes.lines) for axes in figures[1].axes] == [2, 2, 2, 2, 2, 2]
    assert [len(axes.collections) for axes in figures[1].axes[:3]] == [1, 1, 1]


def test_what_diverges_leaves_the_picture_and_its_name_says_so() -> None:
    gone = run((1, 4), (2, 5e9), (3, float("nan")))
    fig = loss.figure([gone, [run((1, 4), (3, 2)), gone]], names=["alone", "both"])
    names = [text.get_text() for text in fig.legends[0].get_texts()]
    assert names == ["alone (diverged)", "both (1 of 2 diverged)"]
    assert np.isnan(fig.axes[0].lines[0].get_ydata()).tolist() == [False, True, True]  # type: ignore[arg-type]
    fig.draw_without_rendering()
    assert fig.axes[0].get_ylim()[1] < 1e4
