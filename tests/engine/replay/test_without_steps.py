"""What a replayed record says without its steps is what its steps say."""

from dataclasses import replace

import numpy as np
import pytest

import sim
from sim.engine.link_loads import link_loads
from sim.engine.memory_curve import memory_curve
from sim.engine.play import play
from sim.engine.timeline import Columns, columns_of
from sim.parallel.step import training_step
from sim.scenario.setup import from_scenario

JOBS = ("gpt3-175b-megatron", "llama3-8b-perlmutter", "mtnlg-530b", "llama2-70b-lora-mlperf")


def rows(columns: Columns) -> np.ndarray:
    """All rows in an order of their own, causes by name."""
    names = np.unique(columns.causes, return_inverse=True)[1].reshape(-1)[columns.cause]
    own = (columns.role, columns.begin, columns.end, columns.computes, names, *columns.actions.T)
    table = np.array(own, dtype=float).T
    return table[np.lexsort(table.round(9).T)]


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
        rows(record.timeline.columns), rows(columns_of(steps.timeline.spans))
    )
