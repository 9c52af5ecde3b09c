"""Exchanges: every send has its receive, in every style, and nobody waits in a circle."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine.clock import play
from sim.engine.fold import fold
from sim.parallel import pipeline
from sim.parallel.exchange import exchanged, name_of
from sim.program import Communicate, Receive, Send
from tests.engine.programs import machine, training

STYLES = ["batched", "async-send", "overlapped"]


def calls(stages, microbatches, chunks, style):
    """(stage, call) of all sends and receives."""
    schedule = (
        pipeline.interleaved(stages, microbatches, chunks)
        if chunks > 1
        else pipeline.one_f_one_b(stages, microbatches)
    )
    return [
        (stage, call)
        for stage in range(stages)
        for operation in exchanged(
            schedule[stage],
            lambda one, after: [],
            stage=stage,
            stages=stages,
            chunks=chunks,
            bytes=8.0,
            style=style,
        )
        if isinstance(operation, Communicate)
        for call in operation.calls
    ]


sizes = st.sampled_from([(2, 4, 1), (4, 4, 1), (4, 8, 2), (3, 6, 3), (2, 2, 2)])


@given(sizes, st.sampled_from(STYLES))
def test_every_send_meets_its_receive(size, style):
    found = calls(*size, style)
    sends = {(stage, call.to, call.key) for stage, call in found if isinstance(call, Send)}
    receives = {
        (call.source, stage, call.key) for stage, call in found if isinstance(call, Receive)
    }
    assert sends == receives
    stages, microbatches, chunks = size
    assert len(sends) == 2 * microbatches * (stages * chunks - 1)


@settings(deadline=None)
@given(sizes, st.sampled_from(STYLES))
def test_no_style_deadlocks(size, style):
    stages, microbatches, chunks = size
    program = training(pp=stages, microbatches=microbatches, chunks=chunks, style=style)
    timeline = play(fold(program, machine("dgx-a100-hdr", stages)))
    passes = [span for span in timeline.spans if span.args.get("phase") in ("F", "B")]
    assert len(passes) >= 2 * stages * microbatches * chunks


def test_names_of_passes_say_phase_microbatch_and_chunk():
    assert name_of(pipeline.Pass("B", 3, 1)) == "B3.1"


@pytest.mark.parametrize("style", STYLES)
def test_overlap_is_never_slower_than_blocking(style):
    end = {
        s: play(
            fold(training(pp=4, microbatches=8, style=s, boundary=4e8), machine("h100-p5-efa", 4))
        ).end
        for s in (style, "overlapped")
    }
    assert end["overlapped"] <= end[style] * (1 + 1e-9)
