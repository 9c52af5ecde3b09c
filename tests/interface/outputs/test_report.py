"""The report as its readers use it, in a real browser where there is one."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sim import cost, plan, run
from sim.config.readable import human_bytes, human_seconds
from sim.interface.cli.main import main
from sim.interface.page import report
from sim.jobs.recorded.file import write
from sim.results.formatting import count, large, percent
from tests.interface.browser import chromium
from tests.jobs.recorded.test_play import LAUNCH, REDUCE, recorded

AXES = "Bokeh.documents.flatMap(doc => doc.roots()).flatMap(root => root.below)"
SHARED = ("ps-ssp", "--set", "sharing.steps=30")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


def written(folder: Path, *arguments: str) -> Path:
    """The page that `sim run` writes, once."""
    page = folder / f"{Path(arguments[0]).stem}.html"
    if not page.exists():
        result = CliRunner().invoke(main, ["run", *arguments, "--report", str(page)])
        assert result.exit_code == 0, result.output
    return page


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


class Opened:
    """A page, and everything that it complained about or asked a network for."""

    def __init__(self, browser: Any, path: Path, **context: Any) -> None:
        viewport = {"width": 1100, "height": 800}
        self.page = browser.new_context(viewport=viewport, **context).new_page()
        self.troubles: list[str] = []
        self.page.on("console", self._logged)
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("request", self._requested)
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("body[data-ready=yes]")

    def _logged(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.troubles.append(message.text)

    def _requested(self, request: Any) -> None:
        if not request.url.startswith(("file:", "data:", "blob:")):
            self.troubles.append(request.url)

    def shown(self, selector: str) -> str:
        return str(self.page.locator(selector).first.inner_text())

    def json(self, name: str) -> Any:
        return json.loads(self.page.locator(f"#{name}").text_content())

    def span(self, chart: str = "timeline") -> tuple[float, float]:
        """From when to when a chart shows."""
        first, _, last = self.shown(f"[data-range={chart}]").partition(" to ")
        return float(first), float(last.split()[0])

    def colours_of_axes(self) -> set[str]:
        return set(self.page.evaluate(f"{AXES}.map(axis => axis.major_label_text_color)"))

    def close(self) -> None:
        self.page.context.close()
        assert not self.troubles


@pytest.fixture(scope="module")
def step(browser: Any, folder: Path) -> Iterator[Opened]:
    """One page for all who leave it as they found it."""
    opened = Opened(browser, written(folder, "gpt3-175b-megatron"))
    yield opened
    opened.close()


@pytest.mark.long
def test_numbers_on_the_page_are_those_of_the_json(step: Opened) -> None:
    numbers = step.json("result")
    human = {
        "step_time": human_seconds, "step_time_expected": human_seconds,
        "step_time_low": human_seconds, "step_time_high": human_seconds,
        "tokens_per_second": count, "mfu": percent, "bubble_fraction": percent,
        "parameters": large, "memory_per_gpu": human_bytes, "interval": str,
        "breakdown": lambda seconds: f"{seconds:.3f} s",
    }  # fmt: skip
    shown = step.page.locator("[data-key]").evaluate_all(
        "all => all.map(one => [one.dataset.key, one.innerText])"
    )
    assert {key.partition(".")[0] for key, _ in shown} == set(human)
    for key, text in shown:
        value: Any = numbers
        for part in key.split("."):
            value = value[part]
        if key == "step_time" and text.count(".") and len(text.partition(".")[2]) > 4:
            assert text == f"{value:.3f} s"  # the sum of the breakdown
        elif key.startswith("breakdown."):
            assert float(text.split()[0]) == pytest.approx(value, abs=1.1e-3)  # so that they add up
        else:
            assert text == human[key.partition(".")[0]](value), key
    assert numbers["step_time"] == run("gpt3-175b-megatron").step_time


def test_buttons_and_keys_zoom_the_timeline_and_memory_moves_along(step: Opened) -> None:
    first, last = step.span()
    assert first == 0.0
    assert last == pytest.approx(step.json("result")["step_time"], rel=0.01)
    step.page.click("[data-zoom=timeline][data-by=in]")
    quarter = (last - first) / 4
    assert step.span() == pytest.approx((quarter, 3 * quarter), rel=0.02)
    assert step.span("memory") == step.span("timeline")
    step.page.focus("#chart-timeline")
    for key in ("+", "ArrowRight"):
        step.page.keyboard.press(key)
    wide = step.span()[1] - step.span()[0]
    assert wide == pytest.approx(quarter, rel=0.03)
    step.page.keyboard.press("0")
    assert step.span() == (first, last)
    step.page.keyboard.press("ArrowLeft")  # nothing is before the beginning
    assert step.span() == (first, last)


def test_a_pass_says_what_it_is(step: Opened) -> None:
    step.page.locator("#chart-timeline").scroll_into_view_if_needed()
    place = step.page.locator("#chart-timeline").bounding_box()
    step.page.mouse.move(place["x"] + 0.5 * place["width"], place["y"] + 20)
    tip = step.page.locator(".bk-tooltip-content")
    tip.wait_for(state="visible")
    assert "stage 0 (8 ranks)" in tip.inner_text()
    assert "backward" in tip.inner_text() or "forward" in tip.inner_text()


def column(columns: Any, **moved: int) -> float:
    """The step time with knobs (by number) moved from their own values."""
    place = 0
    for number, knob in enumerate(columns["knobs"]):
        place = place * len(knob["values"]) + knob["own"] + moved.get(str(number), 0)
    return float(columns["times"][place])


def test_a_slider_answers_from_its_column(step: Opened) -> None:
    columns, result = step.json("columns"), step.json("result")
    assert step.shown("#what-if-time") == human_seconds(result["step_time"])
    for number, knob in enumerate(columns["knobs"]):
        step.page.focus(f"#knob-{number}")
        by = -1 if knob["own"] else 1
        step.page.keyboard.press("ArrowLeft" if by < 0 else "ArrowRight")
        moved = column(columns, **{str(number): by})
        assert step.shown("#what-if-time") == human_seconds(moved), knob["name"]
        assert step.shown(f"[data-value='{number}']") == knob["values"][knob["own"] + by]
        step.page.click("#what-if-reset")
        assert step.shown("#what-if-change") == "as simulated"


def test_another_microbatch_says_whether_it_fits(step: Opened) -> None:
    columns = step.json("columns")
    (number,) = (n for n, one in enumerate(columns["knobs"]) if "microbatch" in one["name"])
    knob = columns["knobs"][number]
    assert step.shown("#what-if-notes").strip() == f"{knob['notes'][knob['own']]}."
    step.page.focus(f"#knob-{number}")
    step.page.keyboard.press("ArrowRight")
    after = knob["notes"][knob["own"] + 1]
    assert step.shown("#what-if-notes").strip() == f"{after}."
    assert after != knob["notes"][knob["own"]]
    step.page.click("#what-if-reset")


def test_the_keyboard_reaches_everything_in_order(browser: Any, folder: Path) -> None:
    opened = Opened(browser, written(folder, "gpt3-175b-megatron"))
    reached = []
    for _ in range(60):
        opened.page.keyboard.press("Tab")
        script = "document.activeElement.id || document.activeElement.tagName"
        reached.append(opened.page.evaluate(script))
    opened.close()
    for name in ("chart-timeline", "chart-memory", "knob-0", "what-if-reset", "SUMMARY", "save"):
        assert name in reached
    assert reached.index("chart-timeline") < reached.index("knob-0") < reached.index("SUMMARY")


def test_files_are_there_with_their_sources(step: Opened) -> None:
    step.page.click("text=device: a100-80gb-sxm")
    assert "# NVIDIA" in step.shown("details[open] pre") or "http" in step.shown(
        "details[open] pre"
    )
    assert step.page.locator("summary").count() >= 5


def test_a_dark_page_has_light_axes_and_paper_dark_ones(browser: Any, folder: Path) -> None:
    opened = Opened(browser, written(folder, "gpt3-175b-megatron"), color_scheme="dark")
    (dark,) = opened.colours_of_axes()
    opened.page.emulate_media(color_scheme="light")
    opened.page.wait_for_function(f"{AXES}[0].major_label_text_color !== '{dark}'")
    (light,) = opened.colours_of_axes()
    assert int(dark[1:3], 16) > 160 > 100 > int(light[1:3], 16)
    opened.page.emulate_media(color_scheme="dark")
    opened.page.wait_for_function(f"{AXES}[0].major_label_text_color === '{dark}'")
    opened.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert opened.colours_of_axes() == {light}
    charts = opened.page.locator(".chart").count()
    assert opened.page.locator(".chart > img").count() == charts >= 3
    opened.page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert opened.colours_of_axes() == {dark}
    assert opened.page.locator(".chart > img").count() == 0
    opened.close()


def test_workers_that_share_updates_have_a_page_too(browser: Any, folder: Path) -> None:
    opened = Opened(browser, written(folder, *SHARED))
    numbers = opened.json("result")
    assert opened.shown("[data-key=time]") == human_seconds(numbers["time"])
    assert opened.shown("[data-key='links.0.bytes']") == human_bytes(numbers["links"][0]["bytes"])
    assert opened.shown("[data-key='shares.compute']") == percent(numbers["shares"]["compute"])
    opened.page.focus("#chart-learning")
    before = opened.span("learning")
    opened.page.keyboard.press("+")
    assert opened.span("learning") != before
    assert opened.page.locator("#network svg").count() == 1
    opened.close()


def test_a_recording_has_a_page_with_its_links_and_sliders(browser: Any, folder: Path) -> None:
    words = ("--topology", "dgx-h100-ndr")
    script = recorded(*[LAUNCH] * 20, REDUCE, replace(LAUNCH, reads=(7,), line=0))
    write([script], folder / "record.json")
    opened = Opened(browser, written(folder, str(folder / "record.json"), *words))
    numbers, columns = opened.json("result"), opened.json("columns")
    assert opened.shown("[data-key=step_time]") == human_seconds(numbers["step_time"])
    assert numbers["inputs"]["model"] == "train.py"
    assert numbers["inputs"]["cluster"] == "dgx-h100-ndr"
    assert opened.page.locator("#network svg").count() == 1
    assert "NICs of nodes" in opened.shown("#network table")
    assert column(columns) == pytest.approx(numbers["step_time"], rel=1e-6)
    opened.page.focus("#knob-0")
    opened.page.keyboard.press("ArrowRight")
    assert opened.shown("#what-if-time") == human_seconds(column(columns, **{"0": 1}))
    assert opened.shown("#inputs table").split()[:2] == ["model", "train.py"]
    opened.close()


def test_jobs_side_by_side_have_timelines_that_move_together(browser: Any, folder: Path) -> None:
    page, words = folder / "compare.html", ["megatron-39b", ": plan.schedule=zb-h1"]
    result = CliRunner().invoke(main, ["compare", *words, "--report", str(page)])
    assert result.exit_code == 0, result.output
    opened = Opened(browser, page)
    numbers = opened.json("result")
    assert opened.shown("[data-key=best]") == numbers["best"] == "plan.schedule=zb-h1"
    assert numbers["reason"] in opened.shown("#table")
    assert opened.page.locator("#timeline .chart").count() == 2
    whole = opened.span("timeline-0")
    assert whole[1] == pytest.approx(max(own["step_time"] for own in numbers["cases"]), rel=0.01)
    opened.page.focus("#chart-timeline-1")
    opened.page.keyboard.press("+")
    assert opened.span("timeline-0") != whole
    assert "scenario: megatron-39b" in opened.shown("#inputs")
    opened.close()


def test_ways_to_share_have_a_page_with_what_they_learn(browser: Any, folder: Path) -> None:
    page, words = folder / "ways.html", ["ps-ssp", ": sharing.bound=0"]
    few = ["--set", "sharing.steps=30"]
    result = CliRunner().invoke(main, ["compare", *words, *few, "--report", str(page)])
    assert result.exit_code == 0, result.output
    opened = Opened(browser, page)
    assert opened.page.locator("#learning svg").count() == 1
    opened.close()


@pytest.mark.long
def test_the_page_of_sixteen_thousand_gpus_is_below_three_megabytes(folder: Path) -> None:
    assert written(folder, "llama3-405b-16k").stat().st_size < 3e6


def test_a_page_of_a_result_alone_says_that_its_files_are_not_known(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    report.write(run("gpt2-one-gpu"), page)
    assert "its files are not known" in page.read_text()


@pytest.mark.parametrize("ending", ["html", "md", "tex", "txt"])
def test_a_file_of_a_search_or_a_cost_begins_with_the_job_that_it_is_about(
    tmp_path: Path, ending: str
) -> None:
    only = ["tp=1", "pp=1", "cp=1", "zero=1", "recompute=none", "microbatch=1"]
    best = plan("gpt2-124m", "dgx-a100-hdr", gpus=8, global_batch=32, only=only)
    for number, answer in enumerate((best, cost("megatron-39b", tokens=1e12))):
        file, given = tmp_path / f"{number}.{ending}", answer.inputs
        report.write(answer, file)
        above = file.read_text().partition("tokens an update")[0].rpartition("<h1>")[2]
        assert given is not None
        named = (given.model, given.cluster, f"{given.gpus} GPUs", f"{given.batch:,} sequences of")
        assert all(word in above for word in named)
        assert len(above) < 600


@pytest.mark.long
def test_a_table_of_many_layouts_is_not_wider_than_the_window(browser: Any, folder: Path) -> None:
    page = folder / "plan.html"
    words = ["gpt2-1.5b", "dgx-a100-hdr", "--gpus=16", "--global-batch=32", "--only=zero=1"]
    result = CliRunner().invoke(main, ["plan", *words, "--report", str(page)])
    assert result.exit_code == 0, result.output
    opened = Opened(browser, page)
    wide = "document.documentElement.scrollWidth <= innerWidth"
    assert opened.page.evaluate(wide)
    opened.page.set_viewport_size({"width": 1400, "height": 900})
    parts = "[...document.querySelectorAll('.scroll')]"
    assert opened.page.evaluate(f"{parts}.every(part => part.scrollWidth <= part.clientWidth)")
    assert not opened.troubles
    opened.close()


@pytest.mark.long
def test_the_same_question_gives_the_same_page(folder: Path) -> None:
    pages = []
    for name in ("first", "second"):
        page = folder / f"{name}.html"
        result = CliRunner().invoke(main, ["run", "megatron-1.7b", "--report", str(page)])
        assert result.exit_code == 0, result.output
        pages.append(page.read_text())
    assert pages[0] == pages[1]
