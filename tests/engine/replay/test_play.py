"""Programs played without a clock, several of one shape at once."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.engine import play as engines
from sim.engine.fold import Folding
from sim.engine.replay.play import Estimate, FoldedMachine, play
from sim.parallel.schedule import table
from sim.program.program import Program
from tests.engine.programs import machine, training, undisturbed

ON = undisturbed(machine("dgx-a100-hdr", 8))


def program(name: str, **changes: object) -> Program:
    chunks = table()[name].chunks or 2
    usual = dict(pp=4, dp=2, microbatches=8, schedule=name, chunks=chunks, style="overlapped")
    return training(**(usual | changes))  # type: ignore[arg-type]


def estimate(own: Program) -> Estimate:
    return FoldedMachine(Folding(own, ON)).estimate(own)


columns = st.lists(
    st.fixed_dictionaries(
        dict(
            forward=st.floats(1e-4, 1e-2),
            boundary=st.floats(1e3, 1e8),
            gradients=st.floats(1e6, 1e9),
            host=st.sampled_from((0.0, 1e-5, 1e-3)),
            layers=st.integers(1, 3),
        )
    ),
    min_size=1,
    max_size=4,
)


@given(st.sampled_from(sorted(table())), columns)
def test_programs_of_one_shape_end_together_as_they_do_alone(name, changes):
    programs = [program(name, **own) for own in changes]
    estimates = [estimate(own) for own in programs]
    assert len({own.shape for own in estimates}) == len({own.form for own in estimates}) == 1
    alone = [engines.play(own, ON, engine="clock").end for own in programs]
    assert play(estimates).end == pytest.approx(np.array(alone), rel=1e-9)


@pytest.mark.parametrize(
    "changes", [{"style": "batched"}, {"overlap": False}, {"microbatches": 12}, {"sync": True}]
)
def test_programs_that_wait_for_other_things_have_another_shape(changes):
    usual = {"style": "async-send"}
    own, other = (estimate(program("1f1b", **(usual | more))) for more in ({}, changes))
    assert own.shape != other.shape


def test_stages_that_do_the_same_in_the_same_time_are_worked_out_once():
    own = program("gpipe")
    alike = replace(own, stages=own.stages[:1] * 4)
    assert len({id(maps) for maps in estimate(alike).stages}) == 1
    slow = replace(ON, slowdown={2: 1.5, 3: 1.5})  # the second stage's ranks
    apart = FoldedMachine(Folding(alike, slow)).estimate(alike)
    assert [maps is apart.stages[0] for maps in apart.stages] == [True, False, True, True]
