"""Which links are asked for more than they have, by hand."""

import pytest

from sim.engine.fold import Folding
from sim.engine.folded import LinkClass, Traffic
from sim.engine.replay.contention import contends, shares
from sim.engine.replay.play import FoldedMachine, play
from sim.engine.replay.writing import Writer
from tests.engine.programs import machine, training

LINKS = (LinkClass("narrow", 1, 1.0), LinkClass("wide", 1, 4.0), LinkClass("idle", 1, 1.0))


def test_traffic_alone_fills_its_narrowest_link_and_takes_a_share_of_the_others():
    traffic = Traffic(latency=1.0, size=6.0, loads=((0, 1.0), (1, 2.0)), seconds=6.0)
    assert dict(shares(traffic, LINKS)) == {0: 1.0, 1: 0.5}


def test_traffic_that_loads_nothing_has_no_share():
    assert dict(shares(Traffic(1.0, 0.0, ()), LINKS)) == {}


@pytest.mark.parametrize(("schedule", "expected"), [("gpipe", False), ("1f1b", True)])
def test_what_comes_from_both_sides_at_once_contends(schedule, expected):
    """A stage between two others receives forward and backward, with GPipe never at once."""
    program = training(pp=3, microbatches=4, schedule=schedule, style="overlapped", boundary=1e9)
    folding = Folding(program, machine("example-hosts", 3))
    estimate = FoldedMachine(folding).estimate(program)
    assert contends(Writer(play([estimate]), [estimate])).tolist() == [expected]
