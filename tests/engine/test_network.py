"""Flows share links by weighted max-min fairness."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.engine.events import Clock
from sim.engine.fair_shares import FairShares, Share
from sim.engine.network import Network


def arrivals(capacities, flows):
    """The end of each flow (start, size, loads) on links of these capacities."""
    env = Clock()
    network = Network(env, capacities)
    ends = {}

    def send(number, start, size, loads):
        yield env.timeout(start)
        done = env.event()
        network.start(size, loads, done.succeed)
        yield done
        ends[number] = env.now

    for number, flow in enumerate(flows):
        env.process(send(number, *flow))
    env.run()
    return [ends[number] for number in range(len(flows))]


def fair_rates(all_loads, capacities):
    """The rates of flows (B/s) that all begin at once."""
    shares = FairShares(capacities)
    flows = [Share(loads, order) for order, loads in enumerate(all_loads)]
    for flow in flows:
        shares.resize(flow, 1)
    shares.settle()
    return [flow.fair for flow in flows]


def test_a_flow_alone_has_the_narrowest_link_to_itself():
    assert arrivals([10.0, 2.0], [(0.0, 6.0, ((0, 1.0), (1, 1.0)))]) == [3.0]


def test_two_flows_halve_a_link_until_the_first_is_done():
    assert arrivals([1.0], [(0.0, 1.0, ((0, 1.0),)), (0.0, 2.0, ((0, 1.0),))]) == [2.0, 3.0]


def test_a_late_flow_slows_the_early_one_from_then_on():
    early, late = arrivals([1.0], [(0.0, 1.0, ((0, 1.0),)), (0.5, 1.0, ((0, 1.0),))])
    assert (early, late) == (1.5, 2.0)


def test_weights_count_how_often_a_link_is_crossed():
    # The first flow crosses the link three times, so equal progress means a quarter each.
    assert arrivals([1.0], [(0.0, 1.0, ((0, 3.0),)), (0.0, 1.0, ((0, 1.0),))]) == [4.0, 4.0]


def test_what_one_link_leaves_over_goes_to_the_others():
    shared, own = ((0, 1.0), (1, 1.0)), ((1, 1.0),)
    assert fair_rates([shared, own], [1.0, 10.0]) == [1.0, 9.0]


links = st.integers(0, 4)
loads = st.dictionaries(links, st.floats(0.1, 4.0), min_size=1).map(lambda d: tuple(d.items()))


@given(st.lists(loads, min_size=1, max_size=12))
def test_every_flow_is_held_back_by_a_full_link_on_which_none_is_faster(all_loads):
    capacities = [1.0, 2.0, 3.0, 5.0, 8.0]
    rates = fair_rates(all_loads, capacities)
    loads = {i: dict(on) for i, on in enumerate(all_loads)}
    used = [sum(rates[i] * on.get(link, 0.0) for i, on in loads.items()) for link in range(5)]
    assert all(u <= c * (1 + 1e-9) for u, c in zip(used, capacities, strict=True))
    for i, on in loads.items():
        full = [link for link in on if used[link] >= capacities[link] * (1 - 1e-9)]
        others = [max(rates[j] for j, other in loads.items() if link in other) for link in full]
        assert any(rates[i] >= other * (1 - 1e-9) for other in others)


@given(st.lists(st.tuples(st.floats(0, 3), st.floats(0.1, 5), loads), min_size=1, max_size=10))
def test_a_faster_network_is_never_slower_in_the_end(flows):
    slow = max(arrivals([1.0] * 5, flows))
    fast = max(arrivals([2.0] * 5, flows))
    assert fast <= slow * (1 + 1e-9)


@given(st.lists(st.tuples(st.floats(0, 3), st.floats(0.1, 5)), min_size=1, max_size=10))
def test_a_link_never_idles_while_bytes_wait(flows):
    ends = arrivals([2.0], [(start, size, ((0, 1.0),)) for start, size in flows])
    clock = 0.0
    for start, size in sorted(flows):
        clock = max(clock, start) + size / 2.0
    assert max(ends) == pytest.approx(clock)


class Checked(Network):
    """After every change, holds the rates against those of all flows found anew."""

    def _settle(self, event):
        super()._settle(event)
        flows = {flow: None for on_link in self.shares.on for flow in on_link}
        anew = fair_rates([flow.loads for flow in flows], self.shares.capacity)
        for flow, rate in zip(flows, anew, strict=True):
            assert flow.rate == pytest.approx(rate, rel=1e-9)


@given(
    st.lists(st.tuples(st.floats(0, 2), st.floats(0.1, 5), loads), min_size=2, max_size=14),
    st.lists(st.sampled_from([0.5, 1.0, 2.0, 4.0]), min_size=5, max_size=5),
)
def test_rates_found_locally_are_those_of_the_whole_network(flows, capacities):
    env = Clock()
    network = Checked(env, capacities)
    ended = []

    def send(start, size, its_loads):
        yield env.timeout(start)
        network.start(size, its_loads, ended.append)

    for flow in flows:
        env.process(send(*flow))
    env.run()
    assert len(ended) == len(flows)


delayed = st.tuples(st.floats(0, 3), st.sampled_from((0.0, 0.25, 1.0)), st.floats(0.1, 5), loads)


@given(st.lists(delayed, min_size=1, max_size=10))
def test_what_is_known_of_a_flow_ahead_is_what_becomes_of_it(flows):
    """A flow begun after its latency by hand ends when one does that says so beforehand."""

    def ends(by_hand):
        env = Clock()
        network, found = Network(env, [1.0, 2.0, 3.0, 5.0, 8.0]), {}

        def send(number, begin, latency, size, loads):
            yield env.timeout(begin)
            if by_hand:
                yield env.timeout(latency)
                latency = 0.0
            network.start(size, loads, lambda _: found.update({number: env.now}), None, latency)

        for number, flow in enumerate(flows):
            env.process(send(number, *flow))
        env.run()
        return [found[number] for number in range(len(flows))]

    assert ends(False) == pytest.approx(ends(True), rel=1e-9)


def test_a_link_is_idle_until_a_flow_s_latency_is_over_and_then_who_watches_is_told():
    env = Clock()
    network, told = Network(env, [1.0]), []
    network.start(1.0, ((0, 1.0),), lambda _: None, None, 2.0)
    assert network.idle([0])
    env.run(until=1.0)
    network.watch([0], lambda _: told.append(env.now))
    env.run(until=2.5)
    assert told == [2.0]
    assert not network.idle([0])
    env.run()
    assert env.now == 3.0
