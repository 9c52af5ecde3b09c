"""The critical path adds up to the step, whatever a program is made of."""

import pytest

from sim.engine.clock import play
from sim.engine.critical_path import critical_path
from sim.engine.fold import fold
from sim.engine.record import Record
from sim.program.causes import COMPUTE
from tests.engine.programs import machine, training
from tests.engine.random_programs import random_program


def spent(record: Record) -> float:
    """Seconds on the critical path, all of them."""
    seconds = critical_path(record).values()
    assert all(each >= -1e-12 for each in seconds)
    return sum(seconds)


@pytest.mark.parametrize("shared", [False, True], ids=["links of their own", "shared links"])
@pytest.mark.parametrize("seed", range(40))
def test_the_seconds_of_the_critical_path_are_the_step(seed: int, shared: bool) -> None:
    record = play(random_program(seed, shared=shared))
    assert spent(record) == pytest.approx(record.end, rel=1e-9)


@pytest.mark.parametrize("style", ["batched", "async-send", "overlapped"])
@pytest.mark.parametrize("slowdown", [{}, {3: 1.5}], ids=["healthy", "a slow rank"])
def test_those_of_a_pipeline_are_its_step(style, slowdown) -> None:
    program = training(tp=2, dp=2, pp=4, microbatches=8, style=style, boundary=1e8)
    record = play(fold(program, machine("dgx-a100-hdr", 16, slowdown=slowdown)))
    assert spent(record) == pytest.approx(record.end, rel=1e-9)


def test_without_messages_that_take_time_it_runs_through_the_passes_of_the_first_stage() -> None:
    program = training(pp=2, microbatches=4, layers=1, boundary=0.0, host=0.0, overlap=False)
    path = critical_path(play(fold(program, machine("dgx-a100-hdr", 2))))
    # Forward on the first stage, all of the second's passes, backward on the first: 15 ms.
    assert sum(path[stage, COMPUTE] for stage in (0, 1)) == pytest.approx(5 * 3e-3)
