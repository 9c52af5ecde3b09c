"""The laws that every test holds traffic to can fail (`tests.invariants`)."""

import pytest

from sim.engine.events import Clock
from sim.engine.fair_shares import FairShares, Share
from sim.engine.network import Network
from tests import invariants


def shared() -> tuple[FairShares, list[Share]]:
    """Two flows on one link, of which one goes on over another."""
    shares = FairShares([10.0, 4.0])
    flows = [Share(((0, 1.0),), 0), Share(((0, 1.0), (1, 1.0)), 1)]
    for flow in flows:
        shares.resize(flow, 1)
    shares.settle()
    return shares, flows


def test_rates_as_they_are_keep_the_laws() -> None:
    shares, flows = shared()
    invariants.check(shares, flows)
    assert [flow.fair for flow in flows] == [6.0, 4.0]


def test_more_than_a_link_carries_is_found() -> None:
    shares, flows = shared()
    flows[0].fair = 6.1
    with pytest.raises(AssertionError, match="link 0 carries"):
        invariants.check(shares, flows)


@pytest.mark.parametrize("rates", [(5.0, 4.0), (6.0, 3.0)])
def test_a_flow_that_waits_beside_room_is_found(rates: tuple[float, float]) -> None:
    shares, flows = shared()
    for flow, rate in zip(flows, rates, strict=True):
        flow.fair = rate
    with pytest.raises(AssertionError, match="no link of it is full"):
        invariants.check(shares, flows)


def test_a_capacity_that_is_none_is_found() -> None:
    shares, flows = shared()
    shares.capacity[1] = -3.0
    with pytest.raises(AssertionError, match="has a capacity of -3"):
        invariants.check(shares, flows)


def test_bytes_that_vanish_are_found() -> None:
    env = Clock()
    network = Network(env, [1.0])
    network.start(8.0, ((0, 1.0),), lambda _: None, latency=1.0)
    env.run(until=2.0)
    flow = network._ahead[0]
    assert flow is not None
    flow.remaining = 7.0
    with pytest.raises(AssertionError, match="bytes are left"):
        env.run()
