"""Outlines: what roles of a stage do, said once."""

import gc
import weakref
from dataclasses import replace

import pytest

from sim.engine import outline
from sim.engine.fold import Folding
from sim.engine.play import play
from tests.engine.programs import machine, training, undisturbed

ON = undisturbed(machine("dgx-a100-hdr", 16))


def test_a_program_is_written_out_once_however_sick_the_machines_are_that_it_is_played_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[int] = []
    original = outline.operations

    def counted(program, stage):
        written.append(stage)
        return original(program, stage)

    monkeypatch.setattr(outline, "operations", counted)
    program = training(tp=4, pp=2, dp=2)
    for slowdown in ({}, {1: 1.5}, {1: 1.5, 9: 2.0}):
        play(program, replace(ON, slowdown=slowdown), engine="clock")
    assert written == [0, 1]


def test_it_goes_with_its_program() -> None:
    program = training(tp=2, pp=2)
    gone = weakref.ref(program)
    outline.outlines(program)
    assert program in outline._outlines
    del program
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("together", [True, False])
def test_roles_of_a_stage_that_cut_their_work_alike_have_the_same_steps(together: bool) -> None:
    program = training(tp=4, pp=2, dp=2)
    folded = Folding(program, replace(ON, slowdown={1: 1.5})).folded(together=together)
    for stage in range(2):
        alike = {
            tuple(
                (type(step), step.index, step.name, step.after, step.sync)
                for steps in role.streams.values()
                for step in steps
            )
            for role in folded.roles
            if role.role.stage == stage
        }
        assert len(alike) == 1
