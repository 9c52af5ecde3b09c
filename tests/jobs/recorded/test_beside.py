"""What runs beside what in a recording: losses of kernels, and the order of a communicator."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sim
from sim.jobs.recorded.recording import Event, Group
from tests.jobs.recorded.test_play import LAUNCH, REDUCE, recorded

NODE, RAILS = Group(first=0, axes=((1, 8),)), Group(first=0, axes=((8, 2),))
READ = replace(LAUNCH, reads=(REDUCE.mark,))
WITHIN = Event(kind="collective", name="all_gather", group=0, bytes=2e9, mark=8, blocking=True)
ALONG = replace(REDUCE, group=1)


def played(*events: Event) -> sim.Result:
    own = recorded(*events, groups=(NODE, RAILS))
    return sim.run(sim.RecordedScenario(record=(own,), topology="dgx-h100-ndr"))


@settings(max_examples=20, deadline=None)
@given(st.sets(st.integers(1, 11)))
def test_where_computations_are_cut_changes_nothing(cuts: set[int]) -> None:
    """A mark that another stream waits for cuts a computation in two; the collective is beside
    both as it was beside one."""
    row: list[Event] = [ALONG]
    for place in range(12):
        if place in cuts:
            mark = 100 + place
            row += [Event(kind="record", mark=mark), Event(kind="wait", stream=5, mark=mark)]
        row.append(LAUNCH)
    cut, whole = played(*row, READ), played(ALONG, *[LAUNCH] * 12, READ)
    assert cut.step_time == pytest.approx(whole.step_time, rel=1e-9)
    assert cut.breakdown == pytest.approx(whole.breakdown, rel=1e-6)


def test_kernels_lose_nothing_while_the_stream_is_held_up() -> None:
    """The longer other collectives hold the main stream up, the less of one is beside kernels."""
    work = [LAUNCH] * 12
    free = played(ALONG, *work, READ)
    held = played(ALONG, *work[:6], WITHIN, *work[6:], READ)
    assert 0.0 < held.breakdown["data communication"] < 0.9 * free.breakdown["data communication"]
    assert held.breakdown["tensor communication"] > 0.0


def test_a_communicator_runs_its_collectives_in_order_whatever_their_streams() -> None:
    first, second = (replace(ALONG, blocking=True, stream=n, mark=n) for n in (1, 2))
    result = played(first, second, LAUNCH)
    spans = {span.stream: span for span in result.timeline.spans if span.args.get("kind")}
    assert spans["stream 2"].start == spans["stream 1"].end
    alone = spans["stream 1"].duration
    assert spans["stream 2"].duration == pytest.approx(alone)


def test_a_collective_has_a_share_of_its_port_only_beside_kernels() -> None:
    """Where the main stream waits for it, it takes as long as on the main stream."""
    within = replace(REDUCE, group=0)

    def seconds(*events: Event) -> float:
        (span,) = [span for span in played(*events).timeline.spans if span.args.get("kind")]
        return span.duration

    alone = seconds(LAUNCH, replace(within, blocking=True), READ)
    assert seconds(LAUNCH, within, READ) == pytest.approx(alone)
    assert seconds(within, *[LAUNCH] * 40, READ) > 1.1 * alone
