"""Uses of links by traffic that was played without a clock, and whether they exceed a link."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from sim.config.dataclass import dataclass
from sim.engine.folded import LinkClass, Traffic
from sim.engine.tracks import Floats

Flags = NDArray[np.bool_]

ROUNDING = 1e-9  # share of the step: a shorter overlap is a rounding error of times

_FULL = 1.0 + 1e-6  # share of a link: traffic that asks for more contends


@dataclass(frozen=True, slots=True)
class LinkUse:
    """Traffic of one stream on one link: its share of the link [columns], and when each transfer
    begins and ends [times, columns]."""

    share: Floats
    begin: Floats
    end: Floats

    def column(self, number: int) -> "LinkUse":
        """The use in one column alone."""
        here = slice(number, number + 1)
        return LinkUse(self.share[here], self.begin[:, here], self.end[:, here])


def shares(traffic: Traffic, links: Sequence[LinkClass]) -> Iterator[tuple[int, float]]:
    """Yield each link that traffic loads, with the share of the link that it takes if alone."""
    if traffic.seconds > 0.0:
        rate = traffic.size / traffic.seconds
        for link, load in traffic.loads:
            yield link, rate * load / links[link].capacity


def overfull(uses: Sequence[LinkUse]) -> Flags:
    """Whether streams that share a link ever ask for more than all of it [columns]."""
    asked = sum((use.share for use in uses), np.zeros(1))
    over = np.zeros(len(asked), dtype=bool)
    if not (asked > _FULL).any():
        return over
    begin = np.concatenate([use.begin for use in uses])
    end = np.concatenate([use.end for use in uses])
    # Traffic that ends when other traffic begins does not contend with it.
    end = end - ROUNDING * end.max(axis=0, initial=0.0)
    left = _without_turns(begin, end)
    share = np.concatenate([np.broadcast_to(use.share, use.begin.shape)[:, left] for use in uses])
    times = np.concatenate((begin[:, left], end[:, left]))
    changes = np.concatenate((share, -share))
    order = np.lexsort((changes, times), axis=0)
    sums = np.cumsum(np.take_along_axis(changes, order, axis=0), axis=0)
    over[left] = sums.max(axis=0, initial=0.0) > _FULL
    return over


def _without_turns(begin: Floats, end: Floats) -> NDArray[np.intp]:
    """The columns in which some transfers overlap. In most other columns the transfers take turns
    in the same order, so the times of a single column are sorted."""
    left = np.arange(begin.shape[1])
    while len(left):
        order = np.argsort(begin[:, 0])
        turns: Flags = np.all(end[order[:-1]] <= begin[order[1:]], axis=0)
        if not turns[0]:
            break
        left, begin, end = left[~turns], begin[:, ~turns], end[:, ~turns]
    return left
