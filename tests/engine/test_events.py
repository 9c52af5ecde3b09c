"""A clock on which what differs by rounding happens at once."""

from hypothesis import given
from hypothesis import strategies as st

from sim.engine.events import Clock


def rung(moments: list[float]) -> list[float]:
    """When alarms at these moments ring."""
    clock, times = Clock(), [0.0] * len(moments)
    for number, at in enumerate(moments):
        clock.alarm(at, lambda _, number=number: times.__setitem__(number, clock.now))
    clock.run()
    return times


def test_equal_sums_in_another_order_are_one_moment() -> None:
    assert 0.1 + 0.2 + 0.3 != 0.3 + 0.2 + 0.1
    first, second = rung([0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1])
    assert first == second


def test_a_moment_beside_a_power_of_two_is_found_again_from_below() -> None:
    assert len(set(rung([1.0 + 2**-39, 1.0 + 2**-39 - 2**-53]))) == 1


def test_an_alarm_within_rounding_of_now_rings_now() -> None:
    clock, times = Clock(), []
    again = 0.1 + 0.2 + 0.3

    def ring(_: object) -> None:
        clock.alarm(again, lambda _: times.append(clock.now))

    clock.alarm(0.3 + 0.2 + 0.1, ring)
    clock.run()
    assert times == [0.3 + 0.2 + 0.1]


@given(st.lists(st.floats(1e-9, 1e6), max_size=30))
def test_alarms_ring_in_order_and_where_they_were_set(moments: list[float]) -> None:
    times = rung(moments)
    assert all(abs(time - at) <= 2e-12 * at for time, at in zip(times, moments, strict=True))
    order = sorted(range(len(moments)), key=moments.__getitem__)
    assert [times[n] for n in order] == sorted(times)


def test_moments_that_are_over_are_forgotten() -> None:
    clock = Clock()

    def ring(event: object) -> None:
        if clock.now < 9.9:
            clock.alarm(clock.now + 0.001, ring)

    clock.alarm(0.001, ring)
    clock.run()
    assert len(clock._moments) <= 1001
