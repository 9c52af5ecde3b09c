"""The summary's figures are the result's, its parts add up, and it says what to do."""

import dataclasses
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.engine.timeline import Timeline
from sim.interface.document.answers import html, text
from sim.results.answer import Inputs
from sim.results.formatting import apportioned, bar
from sim.results.result import Result

GIB = 2.0**30


def stage(number, **fields):
    named = {"stage": number, "name": f"stage {number}", "layers": 6}
    return named | {"compute": 15.0, "bubble": 1.0, "memory": 60 * GIB} | fields


RESULT = Result(
    scenario="tiny <&>",
    parameters=174_591_000_000,
    active_parameters=174_591_000_000,
    step_time=18.0,
    step_time_low=17.6,
    step_time_expected=18.36,
    step_time_high=19.04,
    interval={"level": 0.9, "bias": 0.02, "seen": 0.03, "basis": "57 measured runs of torch"},
    samples_per_second=3.5,
    tokens_per_second=7300.4,
    tokens_per_second_per_gpu=114.1,
    mfu=0.394,
    mfu_of_peaks={"bf16": 0.394},
    hfu=0.525,
    model_tflops_per_gpu=122.8,
    breakdown={"bubble": 1.0, "compute": 16.5, "tensor communication": 0.5, "host": 0.0},
    bubble_fraction=0.0556,
    memory_per_gpu={"weights": 20 * GIB, "activations": 73 * GIB, "total": 93 * GIB},
    capacity=80 * GIB,
    fits=False,
    stages=(stage(0, layers=5), stage(1), stage(2), stage(3)),
    ranks=64,
    roles=4,
    operations=8986,
    events=12000,
    engine="clock",
    wall_seconds=0.2,
    warnings=("the network is assumed",),
    timeline=Timeline(roles=(), spans=[], end=18.0),
)


def section(page, title):
    """The lines under a title, up to the next blank line."""
    lines = page.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(title)) + 1
    return [line.strip() for line in lines[first : lines.index("", first)]]


def cells(markup):
    """The texts of an HTML page's table cells; fails where tags are not closed in order."""

    class Reader(HTMLParser):
        def __init__(self):
            super().__init__()
            self.open, self.texts = [], []

        def handle_starttag(self, tag, attrs):
            if tag != "img":
                self.open.append(tag)

        def handle_endtag(self, tag):
            assert self.open.pop() == tag

        def handle_data(self, data):
            if self.open and self.open[-1] == "td":
                self.texts.append(data)

    reader = Reader()
    reader.feed(markup)
    assert reader.open == []
    return reader.texts


def test_the_headline_has_time_rates_and_utilisation():
    page = text(RESULT)
    assert page.startswith("tiny <&> on 64 GPUs\n")
    for fact in (
        "18.0 s",
        "3.5 samples/s",
        "7,300",
        "114 per GPU",
        "39.4 %",
        "simulated; counts full, unmasked attention (PaLM); HFU 52.5 % counts executed FLOPs only, "
        "recomputation included",
    ):
        assert fact in page


def test_causes_come_largest_first_and_the_total_last():
    _, *rows = section(text(RESULT), "Where the time goes")
    assert [row.split("  ")[0] for row in rows] == [
        "compute",
        "bubble",
        "tensor communication",
        "total",
    ]
    assert rows[0].split() == ["compute", "16.500", "s", "91.7", "%", "█" * 30]
    assert rows[-1].split() == ["total", "18.000", "s", "100.0", "%"]


parts = st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=9)


@given(parts)
def test_printed_seconds_and_shares_add_up_to_the_printed_total(seconds):
    breakdown = {f"cause-{i}": value for i, value in enumerate(seconds)}
    result = dataclasses.replace(RESULT, breakdown=breakdown, step_time=sum(seconds))
    rows = [row.split() for row in section(text(result), "Where the time goes")[1:]]
    *printed, total = [(float(row[1]), float(row[3])) for row in rows]
    assert sum(round(1000 * time) for time, _ in printed) == round(1000 * total[0])
    assert sum(round(10 * share) for _, share in printed) == 1000
    assert total[1] == 100.0


@given(parts, st.integers(0, 3))
def test_apportioning_moves_no_part_by_more_than_one_digit(values, digits):
    rounded = apportioned(values, digits)
    assert all(abs(a - b) <= 1.001 * 10.0**-digits for a, b in zip(rounded, values, strict=True))
    assert sum(rounded) == pytest.approx(round(sum(values), digits), abs=1e-6)


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_longer_share_never_has_a_shorter_bar(first, second):
    low, high = sorted((first, second))
    assert len(bar(low)) <= len(bar(high)) <= 30


def test_stages_that_print_alike_share_a_row():
    rows = section(text(RESULT), "Stages")
    assert rows[1].split()[:2] == ["0", "5"]
    assert rows[2].startswith("1 to 3")
    assert "1.00 s (5.6 %)" in rows[2]
    assert rows[2].endswith("60.0 GiB")


def test_a_hundred_different_stages_are_abridged_with_their_number():
    many = tuple(stage(i, layers=i) for i in range(100))
    rows = section(text(dataclasses.replace(RESULT, stages=many)), "Stages")
    assert len(rows) == 25
    assert "... 77 more" in rows
    assert rows[-1].startswith("99")


def test_stragglers_are_a_column_of_stages_and_what_they_cost_a_figure():
    waits = dataclasses.replace(
        RESULT, stages=(stage(0, stragglers=3.0), stage(1)), straggler_seconds=3.0
    )
    rows = section(text(waits), "Stages")
    assert rows[0].split() == ["stage", "layers", "compute", "bubble", "stragglers", "memory"]
    assert "3.00 s (16.7 %)" in rows[1]
    assert "the step takes 20.0 % longer than without slow ranks and links" in text(waits)
    assert "stragglers" not in section(text(RESULT), "Stages")[0]


def test_one_stage_needs_no_table_of_stages():
    assert "Stages" not in text(dataclasses.replace(RESULT, stages=(stage(0),)))


def test_stages_without_memory_have_no_such_column():
    bare = tuple({k: v for k, v in stage(i).items() if k != "memory"} for i in range(2))
    assert "memory" not in section(text(dataclasses.replace(RESULT, stages=bare)), "Stages")[0]


def test_warnings_are_at_the_end_of_the_text_and_in_the_html():
    assert text(RESULT).endswith("\nwarning: the network is assumed")
    assert "the network is assumed" in html(RESULT)


def test_memory_parts_are_listed_largest_first_without_the_total():
    _, *rows = section(text(RESULT), "Memory")
    assert [row.split()[:3] for row in rows] == [
        ["activations", "73.0", "GiB"],
        ["weights", "20.0", "GiB"],
    ]


# --- HTML ----------------------------------------------------------------------------------------


def test_html_has_the_same_figures_and_is_well_formed():
    texts = cells(html(RESULT))
    for fact in ("18.0 s", "7,300", "16.500 s", "91.7 %", "100.0 %", "1 to 3", "73.0 GiB"):
        assert fact in texts


def test_html_escapes_names():
    page = html(RESULT)
    assert "tiny &lt;&amp;&gt;" in page
    cells(page)


def test_a_result_shows_itself():
    assert str(RESULT) == text(RESULT)
    assert RESULT._repr_html_().startswith("<div")


def test_the_headline_says_in_what_the_step_is_computed():
    given = Inputs(precision="bf16", optimizer="adam", stack="Megatron", batch=64, tokens=2048)
    page = text(dataclasses.replace(RESULT, inputs=given))
    (line,) = (line for line in page.splitlines() if line.startswith("  precision"))
    assert line.split() == ["precision", *given.precision.split(), *given.step.split()]
    assert given.step == "Megatron, adam, 64 sequences of 2,048 tokens an update"
    assert Inputs(stack="ddp", batch=32).step == "ddp, 32 samples an update"


def test_tokens_that_nobody_knows_are_no_zero():
    unknown = dict.fromkeys(
        ("samples_per_second", "tokens_per_second", "tokens_per_second_per_gpu"), 0.0
    )
    page = text(dataclasses.replace(RESULT, **unknown))
    assert "unknown samples/s" in page
    assert "as the script uses no embedding" in page
    assert " 0 samples/s" not in page


def test_rent_is_told_as_simulated_and_as_expected_with_its_interval():
    page = text(dataclasses.replace(RESULT, dollars_per_million_tokens=10.0))
    assert "(9.78 to 10.6, 90 %) per million tokens at" in page
