"""Units at the edges: what is read, what is refused, what a person sees."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.config.readable import human_bytes, human_seconds
from sim.config.spoken import number_in
from sim.config.units import Unit, quantity
from sim.kind import load


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("400 Gb/s", "B/s", 50e9),
        ("50 GB/s", "B/s", 50e9),
        ("50GB/s", "B/s", 50e9),
        ("80 GiB", "B", 80 * 2**30),
        ("80 GB", "B", 80e9),
        ("1 b", "B", 0.125),
        ("2 us", "s", 2e-6),
        ("1.5 min", "s", 90.0),
        ("2 h", "s", 7200.0),
        ("1 d", "s", 86400.0),
        ("312 TFLOP/s", "FLOP/s", 312e12),
        ("1410 MHz", "Hz", 1.41e9),
        ("0.7 kW", "W", 700.0),
        ("2.5 USD/h", "USD/h", 2.5),
        ("1e3 Gb/s", "B/s", 125e9),
        ("2.5e-1Gb/s", "B/s", 31.25e6),
        ("1E3 us", "s", 1e-3),
    ],
)
def test_a_text_becomes_si(text: str, unit: str, value: float) -> None:
    assert quantity(text, unit) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("400 gb/s", "did you mean 'b/s'?"),
        ("400 Gb", "write it like '400 Gb/s'"),
        ("2 us", "write it like '400 Gb/s'"),
        ("400", "has no unit"),
        ("fast", "is not a quantity"),
        ("", "is not a quantity"),
        ("nan GB/s", "must be a finite number"),
        ("1e999 GB/s", "must be a finite number"),
    ],
)
def test_what_is_no_bandwidth_is_refused_with_an_example(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        quantity(text, "B/s")
    assert said in str(caught.value)


@pytest.mark.parametrize("value", [5, 5.0, True, None, ["5 B/s"]])
def test_a_number_without_its_unit_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="has no unit"):
        Unit("B/s").read(value)


def test_zero_is_a_time_but_no_bandwidth() -> None:
    assert Unit("s", positive=False).read("0 s") == 0.0
    with pytest.raises(ValueError, match="must be a finite positive number"):
        Unit("B/s").read("0 B/s")


@given(st.floats(min_value=1e-9, max_value=1e12))
def test_bits_are_eighths_of_bytes(number: float) -> None:
    assert quantity(f"{number!r} b/s", "B/s") == pytest.approx(
        quantity(f"{number!r} B/s", "B/s") / 8
    )


@given(st.floats(min_value=1e-9, max_value=1e5))
def test_printed_seconds_read_back_within_half_a_per_cent(seconds: float) -> None:
    printed = human_seconds(seconds).replace(",", "")
    assert quantity(printed, "s") == pytest.approx(seconds, rel=0.0051)


@given(st.floats(min_value=1024.0, max_value=2.0**49))
def test_printed_bytes_read_back_within_half_a_per_cent(count: float) -> None:
    assert quantity(human_bytes(count).replace(",", ""), "B") == pytest.approx(count, rel=0.0051)


def test_small_and_empty_amounts_print_plainly() -> None:
    assert (human_seconds(0.0), human_bytes(0.0), human_bytes(512.0)) == ("0 s", "0 B", "512 B")


@pytest.mark.parametrize("text", ["x", "-3", "0", "1e99", "5 parsecs", ""])
def test_what_is_no_positive_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no number|positive|finite|size"):
        number_in(text)


@pytest.mark.parametrize("said", ["300 billion", "300B", "300e9", "300,000,000,000", "0.3T"])
def test_a_budget_is_read_as_people_say_it(said: str) -> None:
    assert number_in(said) == pytest.approx(300e9)
    assert load("gpt3-175b-cost", {"tokens": said}).tokens == pytest.approx(300e9)
