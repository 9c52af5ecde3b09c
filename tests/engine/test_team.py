"""Teams: roles that meet within computations, as one step or one collective after another."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from sim import run
from sim.engine import clock
from sim.engine.accounts import accounts
from sim.engine.critical_path import critical_path
from sim.engine.fold import Folding
from sim.engine.meetings import DisturbedError
from sim.engine.play import play
from sim.engine.record import Record
from sim.interface.formats.perfetto import events as trace_events
from sim.kind import load
from sim.parallel.step import training_step
from sim.program.causes import STRAGGLERS
from sim.scenario.setup import from_scenario
from tests.engine.programs import machine, training, undisturbed

SLOW: Mapping[int, float] = {1: 1.5}

LAYOUTS = {
    "a slow rank": dict(tp=8, pp=2),
    "slow among replicas": dict(tp=4, pp=2, dp=2),
    "interleaved": dict(tp=4, pp=2, chunks=2, style="overlapped"),
    "bound by the host": dict(tp=4, pp=2, host=3e-3),
    "no pipeline": dict(tp=2, dp=4, overlap=False),
    "sends apart": dict(tp=2, pp=4, style="async-send"),
}


def both(layout: dict[str, object], slow: Mapping[int, float] = SLOW) -> tuple[Record, Record]:
    """A layout played collective by collective, and in teams."""
    on = replace(undisturbed(machine("dgx-a100-hdr", 16)), slowdown=slow)
    folding = Folding(training(**layout), on)  # type: ignore[arg-type]
    program = folding.folded(together=True)
    assert program.teams
    return clock.play(folding.folded()), clock.play(program)


def same(record: Record, other: Record) -> None:
    """Every operation of every role ends when it does in the other; accounts add up."""
    assert record.end == pytest.approx(other.end, rel=1e-9)
    ends = {(span.role, span.stream, span.name): span.end for span in other.timeline.spans}
    compared = 0
    for span in record.timeline.spans:
        place = span.role, span.stream, span.name
        if place in ends and not span.name.endswith(".0"):
            assert span.end == pytest.approx(ends[place], rel=1e-9)
            compared += 1
    assert compared > 5
    # The other leaves out a collective at a pass's end.
    assert record.passes_end >= other.passes_end * (1 - 1e-12)
    for own, usual in zip(accounts(record), accounts(other), strict=True):
        assert sum(own.values()) == pytest.approx(record.end, rel=1e-9)
        assert own.get("compute", 0.0) == pytest.approx(usual.get("compute", 0.0), rel=1e-9)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_team_ends_when_its_roles_do_that_meet_at_every_collective(layout):
    apart, together = both(layout)
    assert together.steps < apart.steps
    same(together, apart)


def test_every_rank_of_a_group_may_be_slow_in_its_own_way():
    apart, together = both(dict(tp=8, pp=2), {rank: 1.0 + rank / 10 for rank in range(8)})
    same(together, apart)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_the_critical_path_through_teams_adds_up_to_the_step(layout):
    apart, together = both(layout)
    assert sum(critical_path(together).values()) == pytest.approx(together.end, rel=1e-6)
    usual, own = by_cause(apart), by_cause(together)
    for cause in usual | own:
        assert own.get(cause, 0.0) == pytest.approx(usual.get(cause, 0.0), abs=0.05 * apart.end)


def by_cause(record: Record) -> dict[str, float]:
    """The critical path's seconds."""
    total: dict[str, float] = {}
    for (_, cause), seconds in critical_path(record).items():
        total[cause] = total.get(cause, 0.0) + seconds
    return total


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"plan.recompute": "full"},
        {"plan.sequence_parallel": True, "plan.tp_comm_overlap": True},
        {"plan.schedule": "zb-h1", "plan.interleave": 1, "plan.recompute": "none"},
    ],
    ids=str,
)
def test_a_real_job_with_a_slow_rank_ends_when_it_does_collective_by_collective(more):
    small = {"gpus": 32, "plan.pp": 4, "model.layers": 8, "plan.global_batch": 12, **more}
    if "plan.schedule" not in more:
        small["plan.interleave"] = 2
    job = load("gpt3-175b-megatron", {**small, "straggler": [{"rank": 5, "factor": 1.5}]})
    setup = from_scenario(job)
    folding = Folding(training_step(setup.job), setup.machine)
    program = folding.folded(together=True)
    assert program.teams
    apart, together = clock.play(folding.folded()), clock.play(program)
    assert together.steps < apart.steps / 3
    same(together, apart)


@pytest.mark.parametrize("rank", [0, 5])
def test_roles_that_meet_several_groups_are_in_no_team(rank: int) -> None:
    """With context parallelism a slow rank meets its tensor group and its ring; its peers in the
    tensor group meet it alone, and wait for nobody who plays otherwise."""
    layout = {
        "plan.cp": 2,
        "plan.pp": 1,
        "plan.interleave": 1,
        "plan.schedule": "1f1b",
        "plan.ep": 4,
    }
    layout |= {"gpus": 8, "model.layers": 4, "plan.global_batch": 16}
    healthy = run("mixtral-8x7b", layout).step_time
    barely, slow = (
        run("mixtral-8x7b", layout | {"straggler": [{"rank": rank, "factor": factor}]}).step_time
        for factor in (1 + 1e-9, 1.2)
    )
    assert barely == pytest.approx(healthy, rel=1e-6)
    assert slow > 1.05 * healthy


def test_a_team_whose_links_others_use_is_played_collective_by_collective():
    job = load("megatron-3.6b", {"straggler": [{"rank": 5, "factor": 1.5}]})
    setup = from_scenario(job)
    program = training_step(setup.job)
    folding = Folding(program, setup.machine)
    with pytest.raises(DisturbedError):
        clock.play(folding.folded(together=True))
    again, fresh = folding.folded(), Folding(program, setup.machine).folded()
    assert len(again.transfers) == len(fresh.transfers)  # and none of the teams'
    assert play(program, setup.machine).end == clock.play(again).end


def test_who_waits_for_a_slow_peer_has_no_kernel_meanwhile():
    _, together = both(dict(tp=4, pp=2))
    waits = [span for span in together.timeline.spans if span.cause == STRAGGLERS]
    assert waits
    slices = [event for event in trace_events(together.timeline) if event["ph"] == "X"]
    named = [event for event in slices if event["name"] == STRAGGLERS]
    assert {event["cat"] for event in named} == {"waiting"}
    assert sum(event["dur"] for event in named) == pytest.approx(
        1e6 * sum(span.duration for span in waits), rel=1e-3
    )
