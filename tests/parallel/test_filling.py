"""Weight gradients among F and I: as early as it costs nothing, as late as memory lets them."""

from dataclasses import replace

import pytest

from sim.parallel.bubble_filling import filled, units
from sim.parallel.schedule import schedule
from sim.program.schedule import Action, in_loops


def order(words: str) -> tuple[Action, ...]:
    return tuple(Action(word[0], int(word[1:])) for word in words.split())  # type: ignore[arg-type]


ORDERS = (order("F0 F1 I0 F2 I1 I2"), order("F0 I0 F1 I1 F2 I2"))


def words(orders: tuple[tuple[Action, ...], ...]) -> list[str]:
    return [" ".join(f"{a.kind}{a.microbatch}" for a in own) for own in orders]


def test_gaps_are_filled_and_what_is_left_comes_last():
    made = filled(ORDERS, in_loops(2, 1), units(2, 1, limit=9))
    # Stage 0 waits for I0 from 2 to 3 with nothing to fill it, for I1 from 5 to 5, for I2 from 6.
    assert words(made.orders) == ["F0 F1 I0 F2 I1 W0 I2 W1 W2", "F0 I0 F1 I1 F2 I2 W0 W1 W2"]
    assert made.starts == (0.0, 1.0)
    assert made.ends == (10.0, 10.0)
    assert made.seconds(apart=True) == 10.0
    assert made.seconds(apart=False) == 10.0


def test_memory_that_is_short_brings_them_forward():
    made = filled(ORDERS, in_loops(2, 1), units(2, 1, limit=2))
    assert words(made.orders) == ["F0 F1 I0 W0 F2 I1 W1 I2 W2", "F0 I0 F1 I1 W0 F2 I2 W1 W2"]


def test_a_message_is_waited_for_between_stages():
    costs = units(2, 1, limit=9)
    late = filled(ORDERS, in_loops(2, 1), replace(costs, message=0.5))
    assert late.starts == (0.0, 1.5)


def test_a_stage_runs_as_long_as_its_passes_and_begins_when_its_input_is_there():
    costs = units(2, 1, limit=9)
    slow = replace(costs, forward=((2.0,), (3.0,)), inputs=((5.0,), (4.0,)))
    made = filled(ORDERS, in_loops(2, 1), slow)
    assert made.starts == (0.0, 2.0)
    last = [action.kind for action in made.orders[1]]
    assert made.ends[1] >= 2.0 + sum({"F": 3.0, "I": 4.0, "W": 1.0}[kind] for kind in last)
    one = filled((order("F0 I0 F1 I1"),), in_loops(1, 1), replace(units(1, 1, 9), inputs=((5.0,),)))
    assert one.ends == (2 * (1.0 + 5.0 + 1.0),)


def test_what_does_not_fit_and_what_waits_in_a_circle_is_refused():
    with pytest.raises(ValueError, match="stage 0 has no room"):
        filled(ORDERS, in_loops(2, 1), units(2, 1, limit=1))
    circle = (order("F0 I1 F1 I0"), order("F0 I0 F1 I1"))
    with pytest.raises(ValueError, match="in a circle"):
        filled(circle, in_loops(2, 1), units(2, 1, limit=9))


def test_filling_1f1b_within_its_own_memory_gives_zb_h1s_bubble():
    for p in (2, 4, 8):
        m = 2 * p
        plain = schedule("1f1b", p, m)
        orders = tuple(
            tuple(a._replace(kind="I") if a.kind == "B" else a for a in own) for own in plain.orders
        )
        made = filled(orders, plain.pieces, units(p, 1, limit=p))
        assert made.seconds(apart=True) == made.seconds(apart=False) == 3 * m + p - 1
