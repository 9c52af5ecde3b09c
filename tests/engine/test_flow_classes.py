"""Classes of equal flows: the same rates as flow by flow, at the cost of their number."""

from collections.abc import Sequence

import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine.events import Clock
from sim.engine.flow_classes import FlowClassNetwork
from sim.engine.flow_groups import FlowClass
from sim.engine.network import Network

LOADS = st.dictionaries(st.integers(0, 5), st.sampled_from((0.25, 0.5, 1.0, 2.0)), min_size=1)
FLOW = st.tuples(st.floats(0, 4), st.floats(0.01, 50), LOADS)
WHOLE = st.tuples(st.integers(0, 6), st.integers(1, 8), st.sets(st.integers(0, 5), min_size=1))
"""Flows of whole bytes that begin at whole seconds, so that much happens in the same instant."""


def ends(
    kind: type, capacities: list[float], flows: list, changes: Sequence[tuple] = ()
) -> list[float]:
    env = Clock()
    links = kind(env, capacities)
    ended = [0.0] * len(flows)

    def arrived(number: int) -> None:
        ended[number] = env.now

    def send(number: int, start: float, size: float, loads: dict) -> object:
        yield env.timeout(start)
        links.start(size, tuple(sorted(loads.items())), arrived, number)

    def change(moment: float, link: int, capacity: float) -> object:
        yield env.timeout(moment)
        links.change(link, capacity)

    for number, flow in enumerate(flows):
        env.process(send(number, *flow))
    for later in changes:
        env.process(change(*later))
    env.run()
    return ended


@settings(max_examples=80, deadline=None)
@given(
    capacities=st.lists(st.floats(0.5, 20), min_size=6, max_size=6),
    flows=st.lists(FLOW, min_size=1, max_size=12),
)
def test_classes_of_flows_end_when_the_reference_network_ends(capacities, flows):
    reference = ends(Network, capacities, flows)
    assert ends(FlowClassNetwork, capacities, flows) == pytest.approx(reference, rel=1e-9, abs=1e-9)


@settings(max_examples=80)
@given(
    flows=st.lists(WHOLE, min_size=1, max_size=10),
    changes=st.lists(
        st.tuples(st.integers(1, 9), st.integers(0, 5), st.sampled_from((0.5, 1.0, 2.0))),
        max_size=4,
    ),
)
def test_flows_that_leave_a_class_and_come_back_in_one_instant_end_once(flows, changes):
    """Links become shared and unshared, slow and fast again, while flows come and go."""
    loaded = [(start, size, dict.fromkeys(links, 1.0)) for start, size, links in flows]
    classed = ends(FlowClassNetwork, [2.0] * 6, loaded, changes)
    assert classed == pytest.approx(filled(flows, changes), rel=1e-9, abs=1e-9)


def filled(flows: list, changes: list) -> list[float]:
    """When flows of whole bytes end, by filling links of 2 B/s anew at every event."""
    capacity, ended, now = [2.0] * 6, {}, 0.0
    left = {number: float(size) for number, (_, size, _) in enumerate(flows)}
    while left:
        for moment, link, rate in changes:
            if moment == now:
                capacity[link] = rate
        on = {number: flows[number][2] for number in left if flows[number][0] <= now}
        rates = fair(on, capacity)
        later = [moment for moment, *_ in [*flows, *changes] if moment > now]
        ends_at = {number: now + left[number] / rate for number, rate in rates.items()}
        following = min([*later, *ends_at.values()])
        for number, rate in rates.items():
            left[number] -= rate * (following - now)
            if ends_at[number] <= following + 1e-12:
                ended[number] = following
                del left[number]
        now = following
    return [ended[number] for number in range(len(flows))]


def fair(on: dict[int, set[int]], capacity: list[float]) -> dict[int, float]:
    """Max-min fair rates: freeze the flows of the fullest link, go on with the rest."""
    rates: dict[int, float] = {}
    while len(rates) < len(on):
        levels = {}
        for link in range(len(capacity)):
            here = [number for number in on if link in on[number]]
            if waiting := [number for number in here if number not in rates]:
                taken = sum(rates.get(number, 0.0) for number in here)
                levels[link] = (capacity[link] - taken) / len(waiting)
        link = min(levels, key=lambda link: levels[link])
        for number in on:
            if link in on[number] and number not in rates:
                rates[number] = levels[link]
    return rates


WAYS = [((0, 1.0), (1, 1.0)), ((0, 1.0), (2, 2.0)), ((0, 1.0), (3, 1.0)), ((4, 1.0),)]


@settings(max_examples=60, deadline=None)
@given(
    capacities=st.lists(st.floats(0.5, 20), min_size=5, max_size=5),
    flows=st.lists(
        st.tuples(st.floats(0, 4), st.floats(0.01, 50), st.sampled_from(WAYS)), max_size=60
    ),
)
def test_many_flows_of_few_ways_end_when_the_reference_network_ends(capacities, flows):
    """A way's own links limit all of its flows, as long as they are few."""
    loaded = [(start, size, dict(way)) for start, size, way in flows]
    reference = ends(Network, capacities, loaded)
    classed = ends(FlowClassNetwork, capacities, loaded)
    assert classed == pytest.approx(reference, rel=1e-9, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(
    limits=st.lists(st.floats(0.1, 4.0), min_size=1, max_size=40),
    starts=st.lists(st.floats(0, 9), min_size=40, max_size=40),
    hub=st.floats(0.5, 30.0),
)
def test_a_group_of_unlike_members_ends_when_the_reference_network_ends(limits, starts, hub):
    flows = [(starts[n], 1.0 + n % 7, {0: 0.5, 1: 0.25, 2 + n: 1.0}) for n in range(len(limits))]
    capacities = [hub, 0.6 * hub, *limits]
    reference = ends(Network, capacities, flows)
    classed = ends(FlowClassNetwork, capacities, flows)
    assert classed == pytest.approx(reference, rel=1e-9, abs=1e-9)


def test_the_level_of_a_group_is_found_beside_the_classes_that_it_passes_alone():
    """Of a thousand unlike flows on one link, one that ends moves the cut by a class or two."""
    env = simpy.Environment()
    network = FlowClassNetwork(env, [300.0, *(0.1 + n / 1000 for n in range(1000))])
    for n in range(1000):
        network.start(10.0 + n, ((0, 1.0), (1 + n, 1.0)), lambda _: None)
    env.run(until=1.0)
    (group,) = network._groups.values()
    passed = []
    switch = FlowClass.switch
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FlowClass, "switch", lambda c, now: (passed.append(c), switch(c, now)))
        env.run()
    assert 0 < len(passed) < 3 * 1000
    assert not group.size


def test_an_incast_of_equal_flows_takes_their_sum():
    flows = [(0.0, 3.0, {0: 1.0, 1 + sender: 1.0}) for sender in range(4)]
    assert ends(FlowClassNetwork, [2.0] * 5, flows) == pytest.approx([6.0] * 4)


def test_flows_that_join_late_share_what_is_left():
    # 8 bytes alone at 2 B/s for 2 s, then half each: 4 left take 4 s; the other's 4 bytes too.
    flows = [(0.0, 8.0, {0: 1.0}), (2.0, 4.0, {0: 1.0})]
    assert ends(FlowClassNetwork, [2.0], flows) == pytest.approx([6.0, 6.0])


def test_a_link_that_slows_down_slows_its_flows_from_then_on():
    env = simpy.Environment()
    network = FlowClassNetwork(env, [2.0])
    ended: list[float] = []
    network.start(8.0, ((0, 1.0),), lambda _: ended.append(env.now))
    env.timeout(2.0).callbacks.append(lambda _: network.change(0, 1.0))
    env.run()
    assert ended == pytest.approx([6.0])


def test_a_shared_link_that_slows_down_slows_all_of_them():
    env = simpy.Environment()
    network = FlowClassNetwork(env, [2.0])
    ended: list[float] = []
    for _ in range(2):
        network.start(4.0, ((0, 1.0),), lambda _: ended.append(env.now))
    env.timeout(2.0).callbacks.append(lambda _: network.change(0, 1.0))
    env.run()
    assert ended == pytest.approx([6.0, 6.0])


def test_bytes_carried_are_bytes_sent():
    env = simpy.Environment()
    network = FlowClassNetwork(env, [2.0, 3.0])
    network.start(4.0, ((0, 1.0), (1, 0.5)), lambda _: None)
    network.start(1.0, ((0, 1.0),), lambda _: None)
    env.run()
    assert network.carried() == [5.0, 2.0]
