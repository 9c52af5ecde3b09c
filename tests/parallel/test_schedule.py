"""Schedules equal the papers' figures, run every pass once, and give the closed-form bubbles."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.config.errors import InputError
from sim.parallel import pipeline
from sim.parallel.pipeline import Pass

stages = st.integers(1, 6)
microbatches = st.integers(1, 12)


@st.composite
def any_schedule(draw):
    p, v = draw(stages), draw(st.integers(1, 3))
    m = p * draw(st.integers(1, 4))
    return draw(
        st.sampled_from(
            [
                pipeline.naive(p, m),
                pipeline.gpipe(p, m),
                pipeline.one_f_one_b(p, m),
                pipeline.interleaved(p, m, v),
            ]
        )
    )


# --- Papers' figures -----------------------------------------------------------------------------


def test_gpipe_is_narayanan_2021_figure_3():
    forward, backward = [f"F{i}" for i in range(8)], [f"B{i}" for i in range(8)]
    lines = pipeline.to_text(pipeline.gpipe(4, 8)).splitlines()
    assert lines == [" ".join(f"{s}{one}" for one in forward + backward) for s in range(4)]


def test_one_f_one_b_is_narayanan_2021_figure_4_top():
    assert pipeline.to_text(pipeline.one_f_one_b(4, 8)).splitlines() == [
        "0F0 0F1 0F2 0F3 0B0 0F4 0B1 0F5 0B2 0F6 0B3 0F7 0B4 0B5 0B6 0B7",
        "1F0 1F1 1F2 1B0 1F3 1B1 1F4 1B2 1F5 1B3 1F6 1B4 1F7 1B5 1B6 1B7",
        "2F0 2F1 2B0 2F2 2B1 2F3 2B2 2F4 2B3 2F5 2B4 2F6 2B5 2F7 2B6 2B7",
        "3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 3F4 3B4 3F5 3B5 3F6 3B6 3F7 3B7",
    ]


def test_interleaved_is_narayanan_2021_figure_4_bottom():
    lines = pipeline.to_text(pipeline.interleaved(4, 8, 2)).splitlines()
    # First device: microbatches 1 2 3 4 of chunk 0, of chunk 1, then 5 6 of chunk 0, then in turn.
    assert lines[0] == (
        "0F0 0F1 0F2 0F3 4F0 4F1 4F2 4F3 0F4 0F5 0F6 4B0 0F7 4B1 4F4 4B2 4F5 4B3 4F6 0B0 4F7 "
        "0B1 0B2 0B3 4B4 4B5 4B6 4B7 0B4 0B5 0B6 0B7"
    )
    assert lines[3] == (
        "3F0 3F1 3F2 3F3 7F0 7B0 7F1 7B1 7F2 7B2 7F3 7B3 3F4 3B0 3F5 3B1 3F6 3B2 3F7 3B3 "
        "7F4 7B4 7F5 7B5 7F6 7B6 7F7 7B7 3B4 3B5 3B6 3B7"
    )


def test_one_chunk_interleaved_warms_up_twice_as_long_as_one_f_one_b():
    # Megatron-LM doubles the warm-up, so that a send can hide behind a pass.
    plain, doubled = pipeline.one_f_one_b(4, 8), pipeline.interleaved(4, 8, 1)
    warmup = [next(i for i, one in enumerate(passes) if one.phase == "B") for passes in plain]
    assert warmup == [4, 3, 2, 1]
    assert [next(i for i, one in enumerate(q) if one.phase == "B") for q in doubled] == [7, 5, 3, 1]


# --- Laws ----------------------------------------------------------------------------------------


@given(any_schedule())
def test_every_microbatch_runs_once_forward_and_once_back_through_every_chunk(schedule):
    chunks = pipeline.chunks_in(schedule)
    count = len(schedule[0]) // (2 * chunks)
    every = {Pass(f, i, c) for f in "FB" for i in range(count) for c in range(chunks)}
    for passes in schedule:
        assert len(passes) == len(every)
        assert set(passes) == every


@given(any_schedule())
def test_backward_follows_forward(schedule):
    for passes in schedule:
        place = {one: i for i, one in enumerate(passes)}
        assert all(place[one] > place[one._replace(phase="F")] for one in passes if one[0] == "B")


@given(any_schedule())
def test_no_schedule_waits_in_a_circle(schedule):
    assert step_time(schedule, forward=1, backward=2) > 0  # the list scheduler raises on a circle


@given(any_schedule())
def test_text_round_trips(schedule):
    assert pipeline.from_text(pipeline.to_text(schedule)) == schedule


# --- Closed forms --------------------------------------------------------------------------------


def step_time(schedule, forward, backward):
    """Play a schedule: a pass starts when its stage is free and the pass before it has ended."""
    p, last = len(schedule), pipeline.chunks_in(schedule) * len(schedule) - 1
    end, free, todo = {}, [Fraction(0)] * p, [list(passes) for passes in schedule]

    def before(one, piece):
        """The pass that this one needs, as (phase, microbatch, piece of the model)."""
        if one.phase == "F":
            return ("F", one.microbatch, piece - 1) if piece > 0 else None
        return ("B", one.microbatch, piece + 1) if piece < last else ("F", one.microbatch, last)

    while any(todo):
        moved = False
        for stage, passes in enumerate(todo):
            while passes:
                one = passes[0]
                piece = one.chunk * p + stage
                need = before(one, piece)
                if need is not None and need not in end:
                    break
                start = max(free[stage], end.get(need, Fraction(0)))
                free[stage] = start + (forward if one.phase == "F" else backward)
                end[one.phase, one.microbatch, piece] = free[stage]
                passes.pop(0)
                moved = True
        assert moved, "every stage waits for another"
    return max(free)


def bubble_of(schedule, forward=Fraction(1), backward=Fraction(2)):
    work = len(schedule[0]) // 2 * (forward + backward)
    return 1 - work / step_time(schedule, forward, backward)


@given(stages, microbatches, st.integers(1, 3))
def test_naive_bubble_is_all_but_one_stage(p, m, backward):
    assert bubble_of(pipeline.naive(p, m), backward=Fraction(backward)) == Fraction(p - 1, p)
    assert pipeline.bubble_naive(p) == pytest.approx((p - 1) / p, rel=1e-15)


@given(stages, microbatches, st.integers(1, 3))
def test_gpipe_bubble_is_p_minus_1_over_m_plus_p_minus_1(p, m, backward):
    found = bubble_of(pipeline.gpipe(p, m), backward=Fraction(backward))
    assert found == Fraction(p - 1, m + p - 1)
    assert pipeline.bubble(p, m) == pytest.approx(float(found), rel=1e-15)


@given(stages, microbatches, st.integers(1, 3))
def test_one_f_one_b_bubble_equals_gpipes(p, m, backward):
    schedule = pipeline.one_f_one_b(p, m)
    assert bubble_of(schedule, backward=Fraction(backward)) == Fraction(p - 1, m + p - 1)


@given(stages, st.integers(1, 4), st.integers(1, 4), st.integers(1, 3))
def test_interleaving_divides_the_bubble_by_chunks(p, rounds, v, backward):
    m = p * rounds
    found = bubble_of(pipeline.interleaved(p, m, v), backward=Fraction(backward))
    assert found == Fraction(p - 1, v * m + p - 1)
    assert pipeline.bubble(p, m, v) == pytest.approx(float(found), rel=1e-15)


@given(st.integers(2, 8), microbatches)
def test_bubble_shrinks_with_microbatches(p, m):
    assert pipeline.bubble(p, m + 1) < pipeline.bubble(p, m)


# --- Memory --------------------------------------------------------------------------------------


@given(stages, microbatches)
def test_gpipe_keeps_every_microbatch_and_one_f_one_b_at_most_the_stages_left(p, m):
    for stage in range(p):
        assert pipeline.peak_in_flight(pipeline.gpipe(p, m), stage) == m
        assert pipeline.peak_in_flight(pipeline.one_f_one_b(p, m), stage) == min(m, p - stage)
        assert pipeline.peak_in_flight(pipeline.naive(p, m), stage) == 1


@given(st.integers(2, 6), st.integers(2, 4), st.integers(2, 3))
def test_interleaved_first_stage_keeps_korthikanti_2022_factor(p, v, rounds):
    # Korthikanti et al. 2022, section 4.2.3: L (1 + (p-1)/(p v)) layers, each chunk of L/(p v).
    peak = pipeline.peak_in_flight(pipeline.interleaved(p, rounds * p, v), 0)
    assert Fraction(peak, p * v) == 1 + Fraction(p - 1, p * v)


# --- Bad input -----------------------------------------------------------------------------------


def test_microbatches_that_do_not_divide_by_interleaved_stages_are_refused():
    with pytest.raises(InputError, match="6 microbatches do not divide by 4"):
        pipeline.interleaved(4, 6, 2)


@pytest.mark.parametrize(("p", "m", "v"), [(0, 4, 1), (4, 0, 1), (4, 4, 0), (-1, 4, 1)])
def test_counts_below_one_are_refused(p, m, v):
    with pytest.raises(InputError, match=">= 1"):
        pipeline.interleaved(p, m, v)


def test_an_unknown_schedule_names_the_known_ones():
    with pytest.raises(InputError, match="naive, gpipe, 1f1b, interleaved"):
        pipeline.schedule("zb-1p", 4, 8)


def test_only_interleaved_takes_chunks():
    with pytest.raises(InputError, match="not 2"):
        pipeline.schedule("1f1b", 4, 8, chunks=2)
    assert pipeline.schedule("interleaved", 4, 8, 2) == pipeline.interleaved(4, 8, 2)


def test_pytorchs_csv_with_communication_reads_as_its_passes():
    text = "0F0,0SEND_F0,,0RECV_B0,0B0,0REDUCE_GRAD\n1RECV_F0,1F0,1B0,1SEND_B0,"
    assert pipeline.to_text(pipeline.from_text(text)) == "0F0 0B0\n1F0 1B0"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("0F0 0X0", "line 1: '0X0' is no action"),
        ("0F0 0I0 0W0", "'0I0' is no whole pass"),
        ("0F 0B0", "'0F' is no whole pass"),
        ("0F0 0B0\n2F0 2B0", "line 2: '2F0' belongs to rank 0 of 2"),
    ],
)
def test_text_that_is_no_schedule_is_refused_by_line(text, complaint):
    with pytest.raises(InputError, match=complaint):
        pipeline.from_text(text)
