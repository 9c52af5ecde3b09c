"""Short schedules stand for long ones: the same order, and the same ends once they are steady."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine.fold import Folding
from sim.engine.machine import Machine
from sim.engine.replay.play import Estimate, FoldedMachine, durations, pipeline_of
from sim.engine.replay.steady import Repeating, repeating
from sim.parallel.schedule import made, table
from sim.program.schedule import Action, Order
from tests.all_pairs import all_pairs
from tests.engine.programs import machine, training, undisturbed

# All forward passes come before all backward ones: how far they are apart grows with a step.
GROWING = {"gpipe", "looped-bfs"}
REPEATING = sorted(table().keys() - GROWING)
LEAST = 3  # microbatches a stage that are to be repeated


def short_form(name: str, stages: int, chunks: int, rest: int = 0) -> Repeating | None:
    own = table()[name]
    least = max(LEAST * stages, own.least(stages))
    return repeating(
        lambda count: made(name, stages, count, chunks),
        stages, rest, own.group(stages), least=least,
    )  # fmt: skip


def chunks_of(name: str, more: int) -> int:
    return table()[name].chunks or more


@pytest.mark.parametrize("name", sorted(GROWING))
def test_a_schedule_that_does_not_repeat_has_no_short_form(name):
    assert all(short_form(name, stages, chunks_of(name, 2)) is None for stages in (2, 4, 8))


# --- The order ------------------------------------------------------------------------------------


def with_periods(own: Repeating, stage: int, repeats: int) -> Order:
    """A stage's order with so many periods inserted behind the last one of its region."""
    order, (last, long) = own.schedule.orders[stage], own.regions[stage]
    period = order[last - long : last]
    inserted = [action for n in range(1, repeats + 1) for action in later(period, n * own.group)]
    return (*order[:last], *inserted, *later(order[last:], repeats * own.group))


def later(order: Order, microbatches: int) -> Order:
    return tuple(
        Action(action.kind, action.microbatch + microbatches, action.chunk) for action in order
    )


@all_pairs(name=REPEATING, stages=(2, 3, 4, 8), repeats=(1, 7))
def test_a_long_run_is_the_short_one_with_periods_inserted(name, stages, repeats):
    chunks = chunks_of(name, 3)
    own = table()[name]
    stages *= own.stages
    for rest in range(1 if own.uneven else own.group(stages)):
        short = short_form(name, stages, chunks, rest)
        assert short is not None
        whole = made(name, stages, short.microbatches + repeats * short.group, chunks)
        assert short.microbatches % short.group == rest
        for stage, order in enumerate(whole.orders):
            assert order == with_periods(short, stage, repeats)


# --- The ends -------------------------------------------------------------------------------------


@st.composite
def pipelines(draw: st.DrawFn) -> dict:
    """Pipelines of uneven stages, with durations of their own."""
    name = draw(st.sampled_from(REPEATING))
    pp = draw(st.sampled_from((2, 4, 6) if table()[name].stages == 2 else (2, 3, 4, 8)))
    return dict(
        schedule=name,
        pp=pp,
        chunks=chunks_of(name, draw(st.integers(2, 3))),
        style=draw(st.sampled_from(("batched", "async-send", "overlapped"))),
        sync=draw(st.booleans()),
        layers=draw(st.integers(1, 2)),
        forward=draw(st.floats(1e-4, 1e-2)),
        boundary=draw(st.floats(1e3, 1e9)),
        gradients=draw(st.floats(1e6, 1e9)),
        overlap=draw(st.booleans()),
        host=draw(st.sampled_from((0.0, 1e-5, 1e-3, 3e-3))),
        slowdown=draw(st.lists(st.sampled_from((1.0, 1.01, 1.4, 2.0)), min_size=pp, max_size=pp)),
    )


def estimate(plan: dict, microbatches: int) -> Estimate:
    """A pipeline of so many microbatches on a network where nothing is in anybody's way."""
    plan = dict(plan)
    slowdown = dict(enumerate(plan.pop("slowdown", ())))
    program = training(**plan, microbatches=microbatches)
    on = on_hosts(plan["pp"], slowdown)
    return FoldedMachine(Folding(program, on)).estimate(program)


def on_hosts(count: int, slowdown: dict[int, float]) -> Machine:
    return replace(undisturbed(machine("example-hosts", count)), slowdown=slowdown)


@pytest.mark.long
@settings(max_examples=80, deadline=None)
@given(plan=pipelines(), repeats=st.sampled_from((1, 2, 5, 20)))
def test_a_steady_pipeline_ends_when_the_whole_one_does(plan, repeats):
    short = short_form(plan["schedule"], plan["pp"], plan["chunks"])
    assert short is not None
    long, own = (estimate(plan, short.microbatches + more * short.group) for more in (repeats, 0))
    ends, steady = short.ends(pipeline_of(own), durations([own]), np.array([float(repeats)]))
    if steady[0]:
        whole = pipeline_of(long)
        expected = whole.times(durations([long]))[:, whole.grid.ends]
        assert ends == pytest.approx(expected, rel=1e-9, abs=1e-12)


def is_steady(plan: dict) -> bool:
    short = short_form(plan["schedule"], plan["pp"], plan["chunks"])
    assert short is not None
    own = estimate(plan, short.microbatches)
    _, steady = short.ends(pipeline_of(own), durations([own]), np.array([1.0]))
    return bool(steady[0])


@pytest.mark.parametrize("name", REPEATING)
@pytest.mark.parametrize("style", ["batched", "async-send", "overlapped"])
def test_one_slow_stage_makes_a_pipeline_steady(name, style):
    slowdown = [1.0, 3.0, 1.0, 1.0]
    assert is_steady(
        dict(schedule=name, pp=4, chunks=chunks_of(name, 2), style=style, slowdown=slowdown)
    )


def test_a_pipeline_whose_microbatches_take_turns_says_that_it_is_not_steady():
    """Messages are hidden for one microbatch in four: four periods repeat, one does not."""
    assert not is_steady(dict(schedule="1f1b", pp=4, chunks=1, style="overlapped"))


@settings(max_examples=20, deadline=None)
@given(plan=pipelines(), forwards=st.lists(st.floats(1e-4, 1e-2), min_size=2, max_size=4))
def test_layouts_that_are_evaluated_together_end_as_they_do_alone(plan, forwards):
    short = short_form(plan["schedule"], plan["pp"], plan["chunks"])
    assert short is not None
    columns = [estimate(plan | {"forward": each}, short.microbatches) for each in forwards]
    repeats = np.arange(1.0, len(columns) + 1.0)
    ends, steady = short.ends(pipeline_of(columns[0]), durations(columns), repeats)
    for number, own in enumerate(columns):
        chosen = repeats[number : number + 1]
        alone, sure = short.ends(pipeline_of(own), durations([own]), chosen)
        assert steady[number] == sure[0]
        assert ends[:, :, number] == pytest.approx(alone[:, :, 0], rel=1e-12)
