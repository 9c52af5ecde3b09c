"""The grid of a schedule: nodes in wavefronts, each behind what it waits for."""

import numpy as np
import pytest

from sim.engine.replay.grid import grid_of
from sim.parallel.schedule import schedule, table

STYLES = ["batched", "async-send", "overlapped"]
# With several chunks neighbours do not take turns, and batched exchanges can wait in a circle.
CASES = [
    (name, style)
    for name, own in sorted(table().items())
    for style in STYLES
    if style != "batched" or (own.chunks == 1 and not own.splits_backward)
]


@pytest.mark.parametrize(("name", "style"), CASES)
def test_every_node_is_deeper_than_what_it_waits_for(name, style):
    grid = grid_of(schedule(name, 4, 16, table()[name].chunks or 2), style)
    for causes in (grid.before, *grid.nodes):
        there = (causes >= 0) & (causes < grid.size)
        assert (grid.depth[causes[there]] < grid.depth[there]).all()


@pytest.mark.parametrize(("name", "style"), CASES)
def test_every_message_has_one_sender_and_one_taker(name, style):
    own = schedule(name, 4, 16, table()[name].chunks or 2)
    grid = grid_of(own, style)
    takers = np.flatnonzero(grid.source >= 0)
    senders = np.flatnonzero(grid.target >= 0)
    assert sorted(grid.source[takers]) == senders.tolist()
    assert (grid.target[grid.source[takers]] == takers).all()
    pairs = [grid.pairs[message] for message in grid.received[takers].tolist()]
    ends = zip(grid.stage[grid.source[takers]].tolist(), grid.stage[takers].tolist(), strict=True)
    assert pairs == list(ends)


def test_stages_end_behind_their_last_pass():
    grid = grid_of(schedule("1f1b", 3, 4), "overlapped")
    assert np.diff(grid.ends, prepend=-1).tolist() == [8 + 1] * 3
    assert (grid.kind[grid.ends] < 0).all()
