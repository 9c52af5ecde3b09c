"""Goodput of workers that share updates: who stops for whose failure, and what is done again."""

from math import exp, inf

import pytest

import sim
from sim import kind, questions
from sim.analysis.reliability.failures import FailureCause, Failures, Recovery
from sim.analysis.reliability.goodput import Goodput, of_pace
from sim.config.units import DAY
from sim.engine.training_run import Conduct, Fault, simulate
from sim.results.likely import Pace
from sim.variability.laws import generator

GPU = FailureCause(name="gpu", count=400.0)
JOB = FailureCause(name="job", count=400.0, component="job")
STEPS = {"sharing.steps": 4}


def failures(*causes: FailureCause, **recovery: object) -> Failures:
    """Of 16 GPUs, each with 25 faults in 30 days."""
    return Failures(gpus=16, window=30 * DAY, cause=causes, recovery=Recovery(**recovery))


def paced(scenario: str, **settings: object) -> Pace:
    return questions.pace(kind.set_up(sim.load(scenario, {**STEPS, **settings}), brief=True))


def over_days(pace: Pace, *causes: FailureCause, **recovery: object) -> Goodput:
    return of_pace(pace, failures(*causes, **recovery), days=200.0)


def test_a_worker_that_fails_alone_stops_nobody_else():
    """With M between the failures of one of n alike and A away each, M / (M + A) of the time
    counts; where all stop for everyone, M / (M + n A), and what no checkpoint has is lost too."""
    away = {"detection": 100.0, "restart": 900.0, "interval": 7200.0, "stop": 5.0}
    alone = over_days(paced("gossip-ad-psgd"), GPU, **away)
    bound = over_days(paced("gossip-ad-psgd", **{"sharing.algorithm": "d_psgd"}), GPU, **away)
    each = 30 * DAY / 25
    assert alone.effective == pytest.approx(each / (each + 1000.0), abs=0.002)
    assert bound.effective < each / (each + 8 * 1000.0) + 0.005 < alone.effective - 0.05
    assert bound.effective > 0.5
    assert alone.seconds["lost work"] < 0.01 * bound.seconds["lost work"]
    assert alone.between == pytest.approx(each / 8)


def test_servers_that_fail_stop_every_worker():
    away = {"detection": 100.0, "restart": 900.0}
    shared = over_days(paced("ps-async", **{"sharing.shards": 2}), GPU, **away)
    colocated = over_days(paced("ps-async", **{"sharing.servers": "colocated"}), GPU, **away)
    of_servers, own = 16 * 25 / (30 * DAY), 25 / (30 * DAY)
    assert shared.effective == pytest.approx(exp(-(of_servers + own) * 1000.0), abs=0.012)
    assert colocated.effective > shared.effective


def test_what_strikes_the_whole_job_stops_all():
    """A failure while one is dealt with begins that anew: e^(-A / M) of the time counts."""
    pace = paced("gossip-ad-psgd")
    job = over_days(pace, JOB, detection=100.0, restart=900.0)
    assert job.effective == pytest.approx(exp(-400 / (30 * DAY) * 1000.0), abs=0.012)


def test_at_most_what_is_at_risk_is_lost():
    faults = [Fault(name="gpu", rate=1e-4)]
    conduct = Conduct(interval=1e9, stop=0.0, detection=0.0, restart=0.0)
    lost = []
    for risk in (0.0, 50.0, inf):
        own = Conduct(interval=conduct.interval, stop=0.0, detection=0.0, restart=0.0, at_risk=risk)
        ledger = simulate(faults, own, seconds=3e6, rng=generator(0, "failures"))
        lost.append((ledger.seconds["lost work"], sum(ledger.faults.values())))
    assert lost[0][0] == 0.0
    assert lost[1][0] == pytest.approx(50.0 * lost[1][1], rel=0.03)
    assert lost[2][0] > 20 * lost[1][0]


def test_without_failures_all_time_counts():
    quiet = over_days(paced("async-local-sgd"), FailureCause(name="gpu", count=0.0))
    assert quiet.effective == 1.0
    assert quiet.interruptions == 0


@pytest.mark.parametrize(
    ("scenario", "settings", "alone"),
    [
        ("ps-async", {}, 8),
        ("ps-async", {"sharing.mode": "bsp"}, 1),
        ("gossip-ad-psgd", {}, 8),
        ("gossip-d-psgd", {}, 1),
        ("easgd", {}, 8),
        ("async-local-sgd", {}, 4),
        ("hogwild", {}, 1),
        ("local-sgd", {"sharing.workers": 4, "sharing.steps": 12}, 1),
    ],
)
def test_who_fails_alone(scenario, settings, alone):
    assert paced(scenario, **settings).alone == alone


def test_the_text_says_what_is_done_again():
    said = str(over_days(paced("easgd"), GPU))
    assert "each of 8 workers fails by itself and repeats" in said
    assert "Limits for" not in said


def test_only_a_job_that_runs_is_struck():
    """Everything fails so often an hour of running (training, checkpoints, restarts), however long
    the job waits for a node to be repaired."""
    node = Fault(name="node", rate=1 / 5e3, breaks=True)
    software = Fault(name="software", rate=1 / 2e3)
    conduct = Conduct(interval=500.0, stop=5.0, restart=100.0, spares=0, repair=20e3)
    ledger = simulate([node, software], conduct, seconds=1e8, rng=generator(0, "failures"))
    running = sum(ledger.seconds[cause] for cause in ("productive", "checkpoints", "restart"))
    running += ledger.seconds["lost work"]
    assert ledger.seconds["waiting"] > 2 * running
    for fault in (node, software):
        assert ledger.faults[fault.name] == pytest.approx(fault.rate * running, rel=0.04)
