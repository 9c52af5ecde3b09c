"""The grid of a schedule: nodes in wavefronts, each behind what it waits for."""

from dataclasses import replace

import numpy as np
import pytest

import sim
from sim.engine.fold import Folding
from sim.engine.folded import LinkClass, Traffic
from sim.engine.link_loads import link_loads
from sim.engine.memory_curve import memory_curve
from sim.engine.play import play
from sim.engine.replay.contention import contends
from sim.engine.replay.grid import grid_of
from sim.engine.replay.link_uses import shares
from sim.engine.replay.play import FoldedMachine
from sim.engine.replay.play import play as replayed
from sim.engine.replay.writing import Writer
from sim.engine.timeline import Columns
from sim.engine.timeline_columns import columns_of, columns_of_spans
from sim.parallel.schedule import schedule, table
from sim.parallel.step import training_step
from sim.scenario.setup import from_scenario
from tests.engine.programs import machine, training

STYLES = ["batched", "async-send", "overlapped"]
# With several chunks neighbours do not take turns, and batched exchanges can wait in a circle.
CASES = [
    (name, style)
    for name, own in sorted(table().items())
    for style in STYLES
    if style != "batched" or (own.chunks == 1 and not own.splits_backward)
]

LINKS = (LinkClass("narrow", 1, 1.0), LinkClass("wide", 1, 4.0), LinkClass("idle", 1, 1.0))
JOBS = ("gpt3-175b-megatron", "llama3-8b-perlmutter", "mtnlg-530b", "llama2-70b-lora-mlperf")


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
    assert contends(Writer(replayed([estimate]), [estimate])).tolist() == [expected]


def rows(columns: Columns) -> np.ndarray:
    """All rows in an order of their own, causes by name."""
    names = np.unique(columns.causes, return_inverse=True)[1].reshape(-1)[columns.cause]
    own = (columns.role, columns.begin, columns.end, columns.computes, names, *columns.actions.T)
    table = np.array(own, dtype=float).T
    return table[np.lexsort(table.round(9).T)]


@pytest.mark.long
@pytest.mark.few(2)
@pytest.mark.parametrize("name", JOBS)
def test_loads_memory_and_columns_are_those_of_the_steps(name: str) -> None:
    setup = from_scenario(sim.load(name))
    program = training_step(setup.job)
    record = play(program, setup.machine)
    steps = replace(record, moments=None, carried=None)
    assert record.carried is not None
    own, theirs = ({one.name: one.bytes for one in link_loads(each)} for each in (record, steps))
    assert own == pytest.approx(theirs, rel=1e-9)
    for stage in {0, len(program.stages) - 1}:
        curve, other = (memory_curve(program, each, stage) for each in (record, steps))
        np.testing.assert_allclose(curve.times, other.times, rtol=1e-9)
        for number, part in enumerate(other.parts):
            here = curve.bytes[:, curve.parts.index(part)]
            np.testing.assert_allclose(here, other.bytes[:, number], rtol=1e-9)
    np.testing.assert_allclose(
        rows(columns_of(record.timeline)), rows(columns_of_spans(steps.timeline.spans))
    )
