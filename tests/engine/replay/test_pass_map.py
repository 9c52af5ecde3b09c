"""The operations of a pass as a (max, +) map, by hand."""

from dataclasses import replace
from math import inf

import pytest

from sim.engine.costs import Costs
from sim.engine.fold import Folding
from sim.engine.replay.pass_map import (
    BROUGHT,
    COMPUTED,
    COMPUTED_2,
    FIRST_STREAM,
    HOST,
    READY,
    PassMap,
    later,
    latest,
    pass_map,
)
from sim.program.operations import INPUT, Communicate, Compute, Operation, PassOps, Recent, Work
from tests.engine.programs import data, machine, segment, training, undisturbed

# A collective takes a second for each of its two members, whatever its bytes.
ON = undisturbed(machine("dgx-a100-hdr", 2), latency=1.0, bandwidth=inf)
READS = replace(segment(0.0), lead=0.0, wait=0.0)
DESK = Folding(training(dp=2), ON).desk.at(0)


def mapped(*operations: Operation) -> PassMap:
    """Of one stage, beside whose computations a stream "data" runs."""
    costs = Costs(DESK.links_of(0))
    return pass_map(PassOps(operations), costs, DESK, 0, ("data",))


def compute(name: str, seconds: float, *after: str, host: float = 0.0) -> Compute:
    return Compute(
        name=name, work=Work(name=name, items=(segment(seconds, host=host),)), after=after
    )


def gather(name: str, *after: str | Recent) -> Communicate:
    return Communicate(name=name, calls=(data("rest", 8.0),), after=after, stream="data")


def waits(own: PassMap, output: int) -> dict[int, float]:
    """What an output depends on, and by how many seconds it is behind."""
    row = enumerate(own.table[output].tolist())
    return {given: lag for given, lag in row if lag > -inf}


END, HOST_FREE, DATA, BEFORE_LAST = range(4)


def test_computations_in_a_row_run_behind_their_input_and_their_launches():
    own = mapped(compute("a", 2.0, INPUT, host=0.5), compute("", 3.0, host=0.5))
    assert waits(own, HOST_FREE) == {HOST: 1.0}
    assert own.computations == 2
    # The host launches the first half a second late; the second launch is hidden.
    assert waits(own, END) == {READY: 5.0, BROUGHT: 5.0, HOST: 5.5}
    assert waits(own, DATA) == {FIRST_STREAM: 0.0}
    assert waits(own, BEFORE_LAST) == {READY: 2.0, BROUGHT: 2.0, HOST: 2.5}


def test_a_host_that_reads_results_is_free_no_sooner_than_they_are_there():
    reads = Compute(name="", work=Work(name="", items=(segment(2.0, host=0.5), READS)))
    own = mapped(reads, compute("", 3.0, host=0.5))
    assert waits(own, HOST_FREE) == {READY: 2.5, HOST: 3.0}
    assert waits(own, END) == {READY: 5.5, HOST: 6.0}


def test_a_collective_on_a_stream_of_its_own_starts_behind_what_it_names():
    own = mapped(compute("a", 4.0), gather("sum", "a"), compute("", 1.0))
    assert waits(own, END) == {READY: 5.0, HOST: 5.0}
    assert waits(own, DATA) == {READY: 6.0, HOST: 6.0, FIRST_STREAM: 2.0}


def test_weights_come_once_those_before_the_last_have_been_used():
    own = mapped(gather("weights 0", Recent(2)), gather("weights 1", Recent(1)),
                 compute("", 1.0, "weights 0"))  # fmt: skip
    # The second gathering queues behind the first one; the layer needs the first one only.
    assert waits(own, DATA) == {FIRST_STREAM: 4.0, COMPUTED_2: 4.0, COMPUTED: 2.0}
    assert waits(own, END) == {READY: 1.0, HOST: 1.0, FIRST_STREAM: 3.0, COMPUTED_2: 3.0}
    assert waits(own, BEFORE_LAST) == {COMPUTED: 0.0}


@pytest.mark.parametrize("seconds", [0.0, 2.5])
def test_the_latest_of_forms_is_behind_all_of_them(seconds):
    a, b = (1.0, -inf, 3.0), (0.0, 4.0, -inf)
    assert latest(later(a, seconds), b) == (1.0 + seconds, 4.0, 3.0 + seconds)
