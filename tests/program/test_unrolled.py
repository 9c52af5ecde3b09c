"""Programs written out: names, causes, and exchanges in which every send has its receive."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine.clock import play
from sim.engine.fold import fold
from sim.parallel.schedule import table
from sim.program.operations import Communicate, Compute, Operation, Receive, Send
from sim.program.program import Program
from sim.program.unrolled import operations
from tests.engine.programs import machine, training

STYLES = ["batched", "async-send", "overlapped"]
NAMES = sorted(table())


def program(name: str, stages: int, rounds: int, style: str, **changes: object) -> Program:
    """A step of a schedule of the table on so many stages, of sizes that suit it."""
    own = table()[name]
    stages *= own.stages
    group = own.group(stages)
    microbatches = group * max(rounds, -(-own.least(stages) // group))
    sizes = dict(pp=stages, microbatches=microbatches, chunks=own.chunks or 2)
    return training(schedule=name, style=style, **(sizes | changes))  # type: ignore[arg-type]


def written(own: Program) -> list[tuple[int, Operation]]:
    """(stage, operation) of all stages in order."""
    return [(s, op) for s in range(len(own.stages)) for op, _ in operations(own, s)]


cases = st.sampled_from(NAMES), st.integers(2, 4), st.integers(1, 3), st.sampled_from(STYLES)


@given(*cases)
def test_every_send_meets_its_receive(name, stages, rounds, style):
    own = program(name, stages, rounds, style)
    calls = [
        (stage, call)
        for stage, operation in written(own)
        if isinstance(operation, Communicate)
        for call in operation.calls
    ]
    sends = [(stage, call.to, call.key) for stage, call in calls if isinstance(call, Send)]
    receives = [
        (call.source, stage, call.key) for stage, call in calls if isinstance(call, Receive)
    ]
    assert sorted(sends) == sorted(receives)
    assert len(set(sends)) == len(sends)
    microbatches = 1 + max(action.microbatch for action in own.schedule.orders[0])
    borders = sum(here != there for (here, _), (there, _) in own.schedule.borders())
    assert len(sends) == 2 * microbatches * borders // len(own.schedule.ways)


@given(*cases)
def test_names_are_unique_within_a_stage_and_causes_come_before(name, stages, rounds, style):
    own = program(name, stages, rounds, style)
    for stage in range(stages):
        names: set[str] = set()
        for operation, _ in operations(own, stage):
            assert operation.name not in names
            assert names.issuperset(map(str, operation.after))
            names.add(operation.name)


@given(*cases)
def test_every_action_computes_behind_what_brings_its_input(name, stages, rounds, style):
    own = program(name, stages, rounds, style)
    for stage, order in enumerate(own.schedule.orders):
        arrived: set[str] = set()
        computed = []
        for operation, action in operations(own, stage):
            if isinstance(operation, Communicate):
                arrived |= {call.key for call in operation.calls if isinstance(call, Receive)}
            elif action is not None and operation.name == str(action):
                computed.append(action)
                source = own.schedule.source(stage, action)
                if source is not None and source[0] != stage:
                    way = "F" if action.kind == "F" else "B"
                    assert any(key.startswith(f"{way}{action.microbatch} ") for key in arrived)
        assert tuple(computed) == order


@settings(deadline=None, max_examples=30)
@given(*cases)
def test_no_style_deadlocks(name, stages, rounds, style):
    own = program(name, stages, rounds, style)
    record = play(fold(own, machine("dgx-a100-hdr", len(own.stages))))
    computed = sum(isinstance(operation, Compute) for _, operation in written(own))
    spans = record.timeline.spans
    assert sum("phase" in span.args for span in spans) == computed


def test_names_of_passes_say_kind_microbatch_and_chunk():
    own = program("interleaved", 2, 2, "overlapped")
    names = {operation.name for _, operation in written(own)}
    assert {"F0.0", "B3.1", "B3.1 early"} <= names


@pytest.mark.parametrize("style", STYLES)
def test_overlap_is_never_slower_than_blocking(style):
    end = {
        s: play(fold(program("1f1b", 4, 8, s, boundary=4e8), machine("h100-p5-efa", 4))).end
        for s in (style, "overlapped")
    }
    assert end["overlapped"] <= end[style] * (1 + 1e-9)
