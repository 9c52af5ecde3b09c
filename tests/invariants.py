"""Laws of traffic, held at every change of rates in every test (`watch`, from conftest.py).

At no moment does a link carry more than its capacity; a flow that goes slower than it could by
itself has a link that is full, and on which nobody goes faster; all bytes of a flow have passed
when it arrives; capacities are positive.
"""

from math import inf
from typing import Any

from sim.engine.fair_shares import FairShares, Share
from sim.engine.network import Flow, Network

_SAME = 1e-9


def watch() -> None:
    """Check the laws from now on."""
    FairShares.settle = _checked_settle(FairShares.settle)  # type: ignore[method-assign]
    FairShares.resize = _checked_resize(FairShares.resize)  # type: ignore[method-assign]
    Network._arrive = _checked_arrival(Network._arrive)  # type: ignore[method-assign]


def check(shares: FairShares, changed: list[Share]) -> None:
    """The laws of capacity and of no idle link, for shares whose rates have just been settled."""
    used = {link: _used(shares, link) for share in changed for link, _ in share.loads}
    for link, rate in used.items():
        room = shares.capacity[link]
        assert room > 0.0, f"link {link} has a capacity of {room}"
        assert rate <= room * (1.0 + _SAME), f"link {link} carries {rate} B/s of {room}"
    for share in changed:
        if share.size and share.loads and share.fair < share.limit:
            full = [link for link, _ in share.loads
                    if used[link] >= shares.capacity[link] * (1.0 - _SAME)]  # fmt: skip
            assert any(share.fair >= max(_rates(shares, link)) * (1.0 - _SAME) for link in full), (
                f"a flow at {share.fair} B/s waits, and no link of it is full"
            )


def _used(shares: FairShares, link: int) -> float:
    total = 0.0
    for share, load in shares.on[link].items():
        limited, free = share.demand(share.fair)
        total += load * (limited + free * share.fair)
    return total


def _rates(shares: FairShares, link: int) -> list[float]:
    return [share.fair for share in shares.on[link]]


def _checked_settle(settle: Any) -> Any:
    def checked(self: FairShares) -> list[Share]:
        changed: list[Share] = settle(self)
        check(self, changed)
        return changed

    return checked


def _checked_resize(resize: Any) -> Any:
    def checked(self: FairShares, share: Share, size: int) -> bool:
        later: bool = resize(self, share, size)
        if size and not later and share.loads and share.limit == inf:
            check(self, [share])
        return later

    return checked


def _checked_arrival(arrive: Any) -> Any:
    def checked(self: Network, wake: Any) -> None:
        flow, alarm = wake._value
        assert isinstance(flow, Flow)
        if alarm == flow.alarm:
            sent = flow.rate * (self.env.now - flow.since)
            rounding = flow.rate * self.env.now * 1e-11  # of the moment of the alarm
            assert abs(flow.remaining - sent) <= _SAME * flow.remaining + rounding + 1e-6, (
                f"{flow.remaining} bytes are left, {sent} of them have passed"
            )
        arrive(self, wake)

    return checked
