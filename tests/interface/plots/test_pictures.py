"""Pictures of answers have what their answers say."""

from collections.abc import Callable
from itertools import combinations, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text

import sim
from sim import kind
from sim.analysis.comparison.steps import StepComparison
from sim.collectives.readings import messages
from sim.collectives.schedule import algorithms, offered
from sim.config.errors import InputError
from sim.interface.cli.main import main
from sim.interface.plots import loss, picture
from sim.interface.plots.collective import figure as rounds
from sim.interface.plots.explanation import figure as explanation
from sim.interface.plots.memory import COLOURS, colour_of
from sim.interface.plots.memory import figure as memory
from sim.interface.plots.networks import busiest
from sim.interface.plots.picture import PALETTE, save
from sim.interface.plots.profile import figure as profile
from sim.jobs.recorded.memory import BESIDE
from sim.jobs.recorded.recording import PARTS
from sim.jobs.sharing.update_record import CurvePoint
from sim.scenario.setup import from_scenario
from sim.simulate import answer
from tests.results.test_profile import PROFILE

PLANS = [getattr(module, kind)(6) for module in algorithms().values() for kind in offered(module)]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.kind)
def test_every_message_has_its_arrow(plan) -> None:  # type: ignore[no-untyped-def]
    axes = rounds(plan).axes[0]
    arrows = [text for text in axes.texts if getattr(text, "arrow_patch", None) is not None]
    assert len(arrows) == len(messages(plan, 1.0))


def test_picture_can_be_saved(tmp_path: Path) -> None:
    rounds(PLANS[0], title="a title").savefig(tmp_path / "rounds.svg")
    assert "<svg" in (tmp_path / "rounds.svg").read_text()


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


@pytest.fixture(scope="module")
def result() -> sim.Result:
    return sim.run("megatron-1.7b")


def test_cables_have_the_colour_of_what_they_carry(result: sim.Result) -> None:
    shares = busiest(result.links)
    assert shares["nic"] == max(load.busy for load in result.links if load.kind == "nic")
    figure = result.plot("network")
    colours = {str(line.get_color()) for axes in figure.axes for line in axes.lines
               if line.get_gid() == "nic"}  # fmt: skip
    assert len(colours) == 1


def test_memory_is_a_picture_too(result: sim.Result) -> None:
    assert "memory" in result.plot("memory").get_suptitle()


def test_a_notebook_shows_a_picture_no_wider_than_its_page(result: sim.Result) -> None:
    head = result.plot()._repr_png_()[:24]  # type: ignore[attr-defined]
    assert head.startswith(b"\x89PNG")
    assert int.from_bytes(head[16:20], "big") <= 1000


def test_an_unknown_picture_is_refused(result: sim.Result) -> None:
    with pytest.raises(InputError, match="has no picture of 'netwrok'; did you mean 'network'"):
        result.plot("netwrok")


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


def bands(scenario: str, **changes: Any) -> dict[str, str]:
    """The colour of each part in the legend of the upper panel."""
    fig: Figure = memory(answer(from_scenario(kind.load(scenario, changes))))
    handles, labels = fig.axes[0].get_legend_handles_labels()
    colours = (to_hex(handle.get_facecolor()[0]) for handle in handles)
    return dict(zip((label.rpartition(", ")[0] for label in labels), colours, strict=True))


def test_parts_have_colours_that_differ() -> None:
    assert len(set(COLOURS.values())) == len(COLOURS)


def test_parts_of_recordings_have_colours_too() -> None:
    assert all(colour_of(name) in COLOURS.values() for name in (*PARTS, BESIDE))


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "scenario",
    ["gpt2-one-gpu", "llama2-70b-fsdp", "pipedream-2bw", "llama2-7b-offload", "llama3-70b-lora"],
)
def test_every_part_of_a_job_has_its_own_colour(scenario: str) -> None:
    for name, colour in bands(scenario).items():
        assert colour == COLOURS[name]


def asked(*words: str) -> str:
    ran = CliRunner().invoke(main, ["run", "gpt3-175b-megatron", *words])
    assert ran.exit_code in (0, 2)
    return ran.output


def test_a_picture_is_a_vector_of_the_width_that_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "column.svg"
    asked("--picture", str(path), "--width", "3.4in")
    text = path.read_text()
    assert 'width="244.8pt"' in text  # 3.4 inches of 72 points
    assert "<dc:title>" in text


@pytest.mark.long
def test_a_pdf_is_the_same_bytes_again(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.pdf", "b.pdf")]
    for path in paths:
        asked("--picture", str(path), "--width", "86mm")
    assert paths[0].read_bytes().startswith(b"%PDF")
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.fixture(scope="module")
def drawings(result: sim.Result) -> dict[str, Callable[[], Figure]]:
    """Pictures with panels beside and below one another, legends in and beside their axes."""
    many = [
        SimpleNamespace(resource=f"bandwidth: pipeline communication {n}", free=0.5, halved=0.7,
                        name=f"attention output wgrad {n}", of_peak=0.7, seconds=0.1,
                        bound="compute")
        for n in range(7)
    ]  # fmt: skip
    limits = SimpleNamespace(step_time=1.0, limits=many)
    explained: Any = SimpleNamespace(limits=limits, kernels=many, result=result)
    return {
        "pipeline": lambda: result.plot(),
        "memory": lambda: result.plot("memory"),
        "explanation": lambda: explanation(explained),
        "collective": lambda: sim.collective(
            "all_reduce", "1MiB..4GiB", "dgx-h100-ndr", gpus=512
        ).plot(),
    }


@pytest.mark.parametrize(
    "name",
    [
        "pipeline",
        "memory",
        "explanation",
        pytest.param("collective", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("width", [3.4, 7.0])
def test_in_a_column_of_a_journal_no_text_is_cut_or_lies_on_another(
    drawings: dict[str, Callable[[], Figure]], name: str, width: float
) -> None:
    drawn = drawings[name]()
    assert isinstance(drawn, picture.Figure)
    figure = drawn.fitted(width)
    figure.draw_without_rendering()
    axes_of = [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]
    shown = {tick.label1 for axis in axes_of for tick in axis._update_ticks()}  # type: ignore[attr-defined]
    beyond = {tick.label1 for axis in axes_of for tick in axis.get_major_ticks()} - shown
    off = [axis for axes in figure.axes if not axes.axison for axis in (axes.xaxis, axes.yaxis)]
    beyond |= {tick.label1 for axis in off for tick in axis.get_major_ticks()}
    texts = [one for one in figure.findobj(Text) if one.get_visible() and one.get_text().strip()]
    boxes = [(one.get_text(), one.get_window_extent()) for one in texts if one not in beyond]
    for said, box in boxes:
        assert box.x0 >= -1.0, said
        assert box.x1 <= figure.bbox.width + 1.0, said
        assert box.y0 >= -1.0, said
        assert box.y1 <= figure.bbox.height + 1.0, said
    for (said, box), (other, beside) in combinations(boxes, 2):
        wide = min(box.x1, beside.x1) - max(box.x0, beside.x0)
        high = min(box.y1, beside.y1) - max(box.y0, beside.y0)
        assert min(wide, high) <= 2.0, (said, other)  # pixels
    if width < 5.0:
        stood = sorted((axes.get_window_extent() for axes in figure.axes), key=lambda box: box.y0)
        assert all(low.y1 <= high.y0 for low, high in pairwise(stood))  # one column


@pytest.mark.parametrize("width", ["wide", "0in", "3.4", "1e9mm"])
def test_a_width_that_is_none_is_refused(width: str, tmp_path: Path) -> None:
    assert "--width" in asked("--picture", str(tmp_path / "a.png"), "--width", width)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["png", "svg"])
def test_it_is_drawn(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"mine.{kind}"
    save(profile(PROFILE, "mine"), path)
    assert path.stat().st_size > 10_000


def test_every_panel_says_what_it_shows() -> None:
    titles = [axes.get_title() for axes in profile(PROFILE, "mine").axes]
    assert titles == [
        "Achieved against peak",
        "Memory-bound kernels",
        f"Errors of {PROFILE.origin.device} without this profile",
        "Predicted against measured",
        "Errors where kept out of the fit",
        "The same by shape, above 20 us",
    ]


def test_names_are_bars_and_numbers_a_line() -> None:
    named = sim.sweep("megatron-1.7b", {"plan.recompute": ["none", "selective", "full"]}, jobs=1)
    axes = named.plot().axes[0]
    assert len(axes.patches) == 3
    assert not axes.lines
    numbers = sim.sweep("megatron-1.7b", {"plan.microbatch": [2, 4]}, jobs=1)
    axes = numbers.plot().axes[0]
    assert not axes.patches
    assert len(axes.lines) == 1
    assert "90 % of measured runs" in axes.get_legend_handles_labels()[1]  # the band


def test_a_figure_of_another_library_has_the_width_that_is_asked_for(tmp_path: Path) -> None:
    figure = Figure(figsize=(6.0, 4.0))
    picture.save(figure, tmp_path / "own.png", 3.0)
    assert tuple(figure.get_size_inches()) == (3.0, 2.0)


def test_panels_of_several_rows_and_columns_become_one_column_and_twins_stay_together() -> None:
    drawn = picture.Figure(figsize=(11.0, 7.4), layout="constrained")
    grid = drawn.add_gridspec(2, 2)
    first, beside, below = map(drawn.add_subplot, (grid[0, 0], grid[0, 1], grid[1, :]))
    twin = first.twinx()
    drawn.fitted(3.4).draw_without_rendering()
    high, twins, middle, low = (axes.get_window_extent() for axes in (first, twin, beside, below))
    assert twins.bounds == high.bounds
    assert low.y1 < middle.y0 < middle.y1 < high.y0
