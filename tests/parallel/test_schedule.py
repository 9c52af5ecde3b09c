"""Schedules equal the papers' figures, run every pass once, and give the closed-form bubbles."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import run
from sim.config.errors import InputError
from sim.kind import described, load
from sim.parallel import schedule_file
from sim.parallel.plan import Plan
from sim.parallel.schedule import Entry, entry, pieces, schedule, table
from sim.parallel.schedule_file import refuse_deadlock
from sim.program.schedule import Action, Kind, Schedule

NAMES = sorted(table())
stages = st.integers(1, 6)
microbatches = st.integers(1, 12)


def spaced(own: Schedule) -> str:
    """The actions with spaces between them."""
    return schedule_file.to_text(own).replace(",", " ")


@st.composite
def any_schedule(draw: st.DrawFn) -> Schedule:
    """A schedule of the table, of sizes that suit it."""
    own = entry(draw(st.sampled_from(NAMES)))
    p = own.stages * draw(st.integers(1, 6 // own.stages))
    suited = [m for m in range(1, 4 * p + 9) if own.takes(p, m)]
    return schedule(
        own.name, p, draw(st.sampled_from(suited)), own.chunks or draw(st.integers(2, 3))
    )


def smallest(own: Entry, p: int) -> int:
    """The fewest microbatches, at least as many as stages, in whole groups."""
    group = own.group(p)
    return -(-max(own.least(p), p) // group) * group


# --- Papers' figures -----------------------------------------------------------------------------


def test_gpipe_is_narayanan_2021_figure_3():
    forward, backward = [f"F{i}" for i in range(8)], [f"B{i}" for i in range(8)]
    lines = spaced(schedule("gpipe", 4, 8)).splitlines()
    assert lines == [" ".join(f"{s}{word}" for word in forward + backward) for s in range(4)]


def test_one_f_one_b_is_narayanan_2021_figure_4_top():
    assert spaced(schedule("1f1b", 4, 8)).splitlines() == [
        "0F0 0F1 0F2 0F3 0B0 0F4 0B1 0F5 0B2 0F6 0B3 0F7 0B4 0B5 0B6 0B7",
        "1F0 1F1 1F2 1B0 1F3 1B1 1F4 1B2 1F5 1B3 1F6 1B4 1F7 1B5 1B6 1B7",
        "2F0 2F1 2B0 2F2 2B1 2F3 2B2 2F4 2B3 2F5 2B4 2F6 2B5 2F7 2B6 2B7",
        "3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 3F4 3B4 3F5 3B5 3F6 3B6 3F7 3B7",
    ]


def test_interleaved_is_narayanan_2021_figure_4_bottom():
    lines = spaced(schedule("interleaved", 4, 8, 2)).splitlines()
    # First device: microbatches 1 2 3 4 of chunk 0, of chunk 1, then 5 6 of chunk 0, then in turn.
    assert lines[0] == (
        "0F0 0F1 0F2 0F3 4F0 4F1 4F2 4F3 0F4 0F5 0F6 4B0 0F7 4B1 4F4 4B2 4F5 4B3 4F6 0B0 4F7 "
        "0B1 0B2 0B3 4B4 4B5 4B6 4B7 0B4 0B5 0B6 0B7"
    )
    assert lines[3] == (
        "3F0 3F1 3F2 3F3 7F0 7B0 7F1 7B1 7F2 7B2 7F3 7B3 3F4 3B0 3F5 3B1 3F6 3B2 3F7 3B3 "
        "7F4 7B4 7F5 7B5 7F6 7B6 7F7 7B7 3B4 3B5 3B6 3B7"
    )


def test_zb_h1_is_qi_2023_figure_3_top():
    assert spaced(schedule("zb-h1", 4, 8)).splitlines() == [
        "0F0 0F1 0F2 0F3 0I0 0W0 0F4 0I1 0W1 0F5 0I2 0W2 0F6 0I3 0W3 0F7 0I4 0W4 0I5 0W5 0I6 0W6 "
        "0I7 0W7",
        "1F0 1F1 1F2 1I0 1F3 1I1 1W0 1F4 1I2 1W1 1F5 1I3 1W2 1F6 1I4 1W3 1F7 1I5 1W4 1I6 1W5 1I7 "
        "1W6 1W7",
        "2F0 2F1 2I0 2F2 2I1 2F3 2I2 2W0 2F4 2I3 2W1 2F5 2I4 2W2 2F6 2I5 2W3 2F7 2I6 2W4 2I7 2W5 "
        "2W6 2W7",
        "3F0 3I0 3F1 3I1 3F2 3I2 3F3 3I3 3W0 3F4 3I4 3W1 3F5 3I5 3W2 3F6 3I6 3W3 3F7 3I7 3W4 3W5 "
        "3W6 3W7",
    ]


def test_interleaving_warms_up_twice_as_long_as_one_f_one_b_and_a_round_for_each_further_chunk():
    # Megatron-LM doubles the warm-up, so that a send can hide behind a pass.
    plain, doubled = schedule("1f1b", 4, 8), schedule("interleaved", 4, 8, 2)
    assert [warm_up(order) for order in plain.orders] == [3, 2, 1, 0]
    assert [warm_up(order) for order in doubled.orders] == [6 + 4, 4 + 4, 2 + 4, 0 + 4]


def warm_up(order: tuple[Action, ...]) -> int:
    """Forward passes before the first pair of one forward and one backward."""
    return next(place for place, action in enumerate(order) if action.kind != "F") - 1


# --- Laws ----------------------------------------------------------------------------------------


@given(any_schedule())
def test_every_microbatch_runs_once_forward_and_once_back_through_every_piece(own):
    parts = Counter(
        (part, action.microbatch, pieces[action.chunk])
        for order, pieces in zip(own.orders, own.pieces, strict=True)
        for action in order
        for part in ("IW" if action.kind == "B" else action.kind)
    )
    count = 1 + max(action.microbatch for order in own.orders for action in order)
    every = {(part, i, piece) for part in "FIW" for i in range(count) for piece in range(own.cuts)}
    assert parts == dict.fromkeys(every, 1)


@pytest.mark.parametrize("p", [2, 4, 8, 16, 32])
@pytest.mark.parametrize("name", NAMES)
def test_every_schedule_is_free_of_deadlocks_on_2_to_32_stages(name, p):
    own = entry(name)
    for m in (smallest(own, p), smallest(own, p) + 3 * own.group(p)):
        refuse_deadlock(schedule(name, p, m, own.chunks or 3))


@given(any_schedule())
def test_each_way_leads_through_the_model_in_order(own):
    for way in own.ways:
        assert [own.pieces[stage][chunk] for stage, chunk in way] == list(range(own.cuts))
    assert sorted(place for way in own.ways for place in way) == sorted(
        (stage, chunk) for stage in range(own.stages) for chunk in range(own.chunks)
    )


@given(any_schedule())
def test_backward_follows_forward_and_the_gradients_of_weights_those_of_inputs(own):
    for order in own.orders:
        place = {action: number for number, action in enumerate(order)}
        for action, number in place.items():
            before: Mapping[Kind, Kind] = {"B": "F", "I": "F", "W": "I"}
            if action.kind in before:
                assert place[action._replace(kind=before[action.kind])] < number


@given(any_schedule())
def test_no_schedule_waits_in_a_circle(own):
    refuse_deadlock(own)
    assert max(played(own, SPLIT)[1]) > 0  # the list scheduler raises on a circle


@given(st.sampled_from(NAMES), stages, st.integers(1, 3))
def test_pieces_lie_alike_whatever_the_number_of_microbatches(name, p, rounds):
    own = entry(name)
    p *= own.stages
    m = 2 * p * rounds * own.group(p)
    chunks = own.chunks or 2
    assert pieces(name, p, m, chunks) == schedule(name, p, m, chunks).pieces


# --- Closed forms --------------------------------------------------------------------------------

SPLIT = {"F": Fraction(1), "B": Fraction(2), "I": Fraction(1), "W": Fraction(1)}


def played(
    own: Schedule, seconds: Mapping[str, Fraction], *, pair: Fraction | None = None
) -> tuple[list[Fraction], list[Fraction]]:
    """When each stage starts and when it ends, where messages take no time; `pair` is what two
    passes that overlap take together."""
    start: dict[int, Fraction] = {}
    free = [Fraction(0)] * own.stages
    done: dict[tuple[bool, int, tuple[int, int]], Fraction] = {}
    left = [list(order) for order in own.orders]
    while any(left):
        moved = False
        for stage, order in enumerate(left):
            while order:
                place = len(own.orders[stage]) - len(order)
                paired = pair is not None and place in own.pairs[stage]
                actions = order[: 1 + paired]
                sources = [(own.source(stage, action), action) for action in actions]
                needed = [(a.kind == "F", a.microbatch, at) for at, a in sources if at is not None]
                if any(need not in done for need in needed):
                    break
                begin = max(free[stage], *(done[need] for need in needed), Fraction(0))
                start.setdefault(stage, begin)
                took = pair if paired and pair is not None else seconds[actions[0].kind]
                free[stage] = begin + took
                for action in actions:
                    if action.kind != "W":
                        made = action.kind == "F", action.microbatch, (stage, action.chunk)
                        done[made] = free[stage]
                del order[: len(actions)]
                moved = True
        assert moved, "every stage waits for another"
    return [start[stage] for stage in range(own.stages)], free


def bubble_of(own: Schedule, backward: Fraction) -> Fraction:
    """The share of a step in which equal stages wait, with a forward pass of a second."""
    seconds = {"F": Fraction(1), "B": backward, "I": backward / 2, "W": backward / 2}
    work = sum(seconds[action.kind] for action in own.orders[0])
    return 1 - work / max(played(own, seconds)[1])


@given(
    st.sampled_from([name for name in NAMES if table()[name].bubble is not None]),
    stages,
    st.integers(0, 8),
    st.integers(2, 3),
    st.integers(1, 3),
)
def test_bubbles_are_those_that_the_table_states(name, p, more, chunks, backward):
    """Whatever a backward pass takes; split ones as the papers state them, F = I = W."""
    own = entry(name)
    assert own.bubble is not None
    p *= own.stages
    v, m = own.chunks or chunks, smallest(own, p) + own.group(p) * more
    seconds = Fraction(2) if own.splits_backward else Fraction(backward)
    shown = bubble_of(schedule(name, p, m, v), seconds)
    assert own.bubble(p, m, v) == pytest.approx(float(shown), rel=1e-15)


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("naive", lambda p, m, v: Fraction(p - 1, p)),
        ("gpipe", lambda p, m, v: Fraction(p - 1, m + p - 1)),
        ("1f1b", lambda p, m, v: Fraction(p - 1, m + p - 1)),
        # Interleaving divides the bubble by the number of chunks.
        ("interleaved", lambda p, m, v: Fraction(p - 1, v * m + p - 1)),
        ("looped-bfs", lambda p, m, v: Fraction(p - 1, v * m + p - 1)),
        # A third of 1F1B's: p - 1 forward passes of a step of 3 m (Qi et al. 2023, section 2.3).
        ("zb-h1", lambda p, m, v: Fraction(p - 1, 3 * m + p - 1)),
        ("zb-h2", lambda p, m, v: Fraction(p - 1, 3 * m + p - 1)),
    ],
)
def test_bubbles_are_the_papers(name, share):
    for p, m in ((1, 4), (2, 4), (4, 8), (8, 64)):
        v = entry(name).chunks or 2
        assert bubble_of(schedule(name, p, m, v), Fraction(2)) == share(p, m, v)


@given(
    st.integers(1, 6), st.integers(0, 8), st.integers(1, 4), st.integers(0, 3), st.integers(0, 3)
)
def test_zero_bubble_table_1(p, more, w, f, i):
    """(p-1) (F+I-W) and (p-1) (F+I-2W) between first and last pass, for F and I at least W."""
    seconds = {"F": Fraction(w + f), "I": Fraction(w + i), "W": Fraction(w)}
    for name, times in (("zb-h1", 1), ("zb-h2", 2)):
        own = schedule(name, p, 2 * p + more)
        start, end = played(own, seconds)
        work = sum(seconds[action.kind] for action in own.orders[0])
        waits = max(ends - starts - work for starts, ends in zip(start, end, strict=True))
        assert waits == (p - 1) * (w + f + w + i - times * w)


@given(st.integers(1, 4), st.integers(0, 4), st.fractions(2, 3))
def test_dual_pipe_table_2(half, more, both):
    """(PP/2-1) (F&B + B - 3W), where F = I = W and a pair takes F&B, at least as long as B."""
    own = schedule("dualpipe", 2 * half, 4 * half + 2 * more, 2)
    seconds = {"F": Fraction(1), "B": Fraction(2), "I": Fraction(1), "W": Fraction(1)}
    own_work = [
        sum(seconds[action.kind] for action in order) - len(pairs) * (3 - both)
        for order, pairs in zip(own.orders, own.pairs, strict=True)
    ]
    end = max(played(own, seconds, pair=both)[1])
    assert end - min(own_work) == (half - 1) * (both + 2 - 3)


@given(st.integers(2, 6), st.integers(0, 8))
def test_no_stage_of_a_full_zb_v_waits_between_its_first_pass_and_its_last(p, more):
    own = schedule("zb-v", p, 2 * p - 1 + more, 2)
    for start, end, order in zip(*played(own, SPLIT), own.orders, strict=True):
        assert end - start == sum(SPLIT[action.kind] for action in order)


@given(stages, microbatches, st.integers(1, 3))
def test_without_chunks_they_hold_for_fewer_microbatches_than_stages_too(p, m, backward):
    for name in ("gpipe", "1f1b"):
        assert bubble_of(schedule(name, p, m), Fraction(backward)) == Fraction(p - 1, m + p - 1)


@given(st.integers(2, 8), microbatches)
def test_bubble_shrinks_with_microbatches(p, m):
    share = entry("1f1b").bubble
    assert share is not None
    assert share(p, m + 1, 1) < share(p, m, 1)


# --- Activations in flight -----------------------------------------------------------------------


def in_flight(own: Schedule, stage: int) -> int:
    """The most microbatches and chunks that have been forward and not all the way back at once."""
    change = {"F": 1, "B": -1, "I": 0, "W": -1}
    return max(accumulate(change[action.kind] for action in own.orders[stage]))


@given(stages, microbatches)
def test_gpipe_keeps_every_microbatch_and_one_f_one_b_at_most_the_stages_left(p, m):
    for stage in range(p):
        assert in_flight(schedule("gpipe", p, m), stage) == m
        assert in_flight(schedule("1f1b", p, m), stage) == min(m, p - stage)
        assert in_flight(schedule("naive", p, m), stage) == 1


@given(st.integers(2, 6), st.integers(2, 4), st.integers(2, 3))
def test_interleaved_first_stage_keeps_korthikanti_2022_factor(p, v, rounds):
    # Korthikanti et al. 2022, section 4.2.3: L (1 + (p-1)/(p v)) layers, each chunk of L/(p v).
    peak = in_flight(schedule("interleaved", p, rounds * p, v), 0)
    assert Fraction(peak, p * v) == 1 + Fraction(p - 1, p * v)


@given(st.integers(2, 6), st.integers(0, 6))
def test_zb_h1_keeps_on_every_stage_what_one_f_one_b_keeps_on_the_first(p, more):
    # Qi et al. 2023, section 2.3: the peak of 1F1B, weights' gradients that are put off included.
    own = schedule("zb-h1", p, 2 * p + more)
    assert [in_flight(own, stage) for stage in range(p)] == [p] * p


@given(st.integers(2, 6), st.integers(0, 6))
def test_zb_v_keeps_on_every_stage_what_one_f_one_b_keeps_on_the_first(p, more):
    # Its chunks are half as large (Qi et al. 2023, section 6).
    own = schedule("zb-v", p, 2 * p + more, 2)
    assert [in_flight(own, stage) for stage in range(p)] == [2 * p] * p


@given(st.integers(1, 6), st.integers(0, 6))
def test_zb_h2_keeps_one_less_than_twice_as_much(p, more):
    # Qi et al. 2023, table 1: 2p-1 microbatches on every stage.
    own = schedule("zb-h2", p, 2 * p + more)
    assert [in_flight(own, stage) for stage in range(p)] == [2 * p - 1] * p


@given(st.integers(1, 4), st.integers(0, 4))
def test_dual_pipe_keeps_one_microbatch_more_than_stages(half, more):
    # DeepSeek-AI 2024, table 2: activations of PP + 1; the halves of DualPipeV's are as many.
    own = schedule("dualpipe", 2 * half, 4 * half + 2 * more, 2)
    assert [in_flight(own, stage) for stage in range(2 * half)] == [2 * half + 1] * (2 * half)
    cut = schedule("dualpipev", half, 2 * half + more, 2)
    assert [in_flight(cut, stage) for stage in range(half)] == [2 * half + 1] * half


@given(st.integers(2, 12), st.integers(0, 6))
def test_v_half_and_v_min_keep_about_a_half_and_a_third_of_what_1f1b_keeps(p, more):
    # Qi et al. 2024: of 1F1B's 2p chunks in flight; building blocks end at whole units.
    for name, share in (("v-half", Fraction(1, 2)), ("v-min", Fraction(1, 3))):
        own = schedule(name, p, 2 * p + more, 2)
        most = max(in_flight(own, stage) for stage in range(p))
        assert share * 2 * p < most <= share * 2 * p + 3


# --- Bad input -----------------------------------------------------------------------------------


def test_microbatches_that_do_not_divide_by_interleaved_stages_are_refused():
    with pytest.raises(InputError, match="needs a multiple of 4 microbatches on 4 stages, not 6"):
        schedule("interleaved-zero-bubble", 4, 6, 2)


def test_interleaved_1f1b_takes_any_number_from_the_stages_on():
    # Megatron-Core takes groups whose last one is whole or has as many microbatches as stages.
    own = schedule("interleaved", 4, 11, 2)
    first = [a.microbatch for a in own.orders[0] if a.kind == "F" and a.chunk == 0]
    again = [a.microbatch for a in own.orders[0] if a.kind == "F" and a.chunk == 1]
    assert first == again == list(range(11))
    order = [a for a in own.orders[0] if a.kind == "F"]
    assert [a.chunk for a in order] == [0] * 6 + [1] * 6 + [0] * 5 + [1] * 5
    with pytest.raises(InputError, match="needs at least 4 microbatches on 4 stages, not 3"):
        schedule("interleaved", 4, 3, 2)


def test_an_odd_number_of_stages_has_no_dual_pipe():
    with pytest.raises(InputError, match="dualpipe needs a multiple of 2 stages, not 3"):
        schedule("dualpipe", 3, 8, 2)


def test_too_few_microbatches_are_refused():
    with pytest.raises(InputError, match="needs at least 8 microbatches on 4 stages, not 7"):
        schedule("dualpipev", 4, 7, 2)


@pytest.mark.parametrize(("p", "m", "v"), [(0, 4, 1), (4, 0, 1), (4, 4, 0), (-1, 4, 1)])
def test_counts_below_one_are_refused(p, m, v):
    with pytest.raises(InputError, match=">= 1"):
        schedule("interleaved", p, m, v)


def test_an_unknown_schedule_names_a_known_one():
    with pytest.raises(InputError, match=r"no schedule named 'gpip'.*'gpipe'"):
        schedule("gpip", 4, 8)
    with pytest.raises(InputError, match=r"no schedule named 'zerobubble'; did you mean 'zb-h1'"):
        schedule("zerobubble", 4, 8)


def test_chunks_are_taken_by_schedules_that_have_them():
    with pytest.raises(InputError, match="runs 1 chunk a stage, not 2; set interleave = 1"):
        schedule("1f1b", 4, 8, 2)
    with pytest.raises(InputError, match="'zb-v' runs 2 chunks a stage, not 3"):
        schedule("zb-v", 4, 8, 3)
    with pytest.raises(InputError, match='set interleave = 2 or more, or schedule = "1f1b"'):
        schedule("interleaved", 4, 8)
    schedule("interleaved", 4, 8, 2)  # both remedies are accepted
    schedule("1f1b", 4, 8)


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved", "dualpipe"])
def test_pipelines_in_a_row_drain_each_time(name: str) -> None:
    plan = Plan(global_batch=24, pp=4, schedule=name, interleave=2 if name == "interleaved" else 1)
    whole = plan.passes()
    drained, one = (
        replace(plan, drains=drains, global_batch=8 * drains).passes() for drains in (3, 1)
    )
    assert bubble_of(drained, Fraction(2)) == bubble_of(one, Fraction(2))
    assert bubble_of(drained, Fraction(2)) > bubble_of(whole, Fraction(2))
    ahead = [
        [Counter(action for action in order if action.kind == "F") for order in own.orders]
        for own in (drained, whole)
    ]
    assert ahead[0] == ahead[1]
    assert [len(own) for own in drained.pairs] == [3 * len(own) for own in one.pairs]


def test_schedules_of_the_same_orders_are_equal() -> None:
    plan = Plan(global_batch=8, pp=4, overlap_experts=True)
    assert plan.passes() == plan.passes()
    assert hash(plan.passes()) == hash(plan.passes())
    assert plan.passes() != replace(plan, overlap_experts=False).passes()


def test_another_schedule_leaves_the_chunks_of_the_first_behind() -> None:
    name = "gpt3-175b-megatron"  # interleaved, 3 chunks
    kept = (
        {"plan.schedule": "interleaved-zero-bubble"},
        {"plan.schedule": "1f1b", "plan.interleave": 3},
    )
    assert [load(name, own).plan.interleave for own in kept] == [3, 3]
    assert load(name, {"plan.schedule": "1f1b"}).plan.interleave == 1
    assert run(load(name, {"plan.schedule": "1f1b"})).bubble_fraction == pytest.approx(
        0.11, abs=0.005
    )


def test_the_same_schedule_keeps_its_chunks() -> None:
    plan = {"pp": 8, "interleave": 3, "global_batch": 64}
    for own in (plan, {**plan, "schedule": "1f1b"}):
        job = {"model": "gpt3-175b", "topology": "dgx-a100-hdr", "plan": own}
        assert described(job, {"plan.schedule": "1f1b"}).layout.interleave == 3
