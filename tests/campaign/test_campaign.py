"""The campaign itself: it sees what a user must never see, and some rounds of fixed numbers hold.

The rounds here are about three minutes of CPU time, all but the cases of the first among the long
tests; `make campaign` goes on for as long as it is let.
"""

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sim.config.errors import InputError
from tests.campaign import __main__ as campaign
from tests.campaign import harm, laws, trials
from tests.campaign.case import Case, Outcome, called, own_folder
from tests.campaign.job import Job
from tests.campaign.jobs import PARTS, drawn
from tests.campaign.trials import Trial, Verdict, tried


def verdicts(*own: Trial) -> list[Verdict]:
    def one_by_one(play: Callable[[Trial], None]) -> None:
        for trial in own:
            play(trial)

    return list(tried(one_by_one))


@dataclass(frozen=True)
class Act:
    """A trial that does something."""

    act: Callable[[], str | None]
    kind: str = "laws"

    def violation(self) -> str | None:
        return self.act()

    def to_dict(self) -> dict[str, Any]:
        return {}


@pytest.fixture(scope="module")
def warm() -> None:
    campaign.warm()


@pytest.mark.long
@pytest.mark.parametrize("number", range(1, 5))
def test_a_round_of_a_fixed_number_holds(number: int, tmp_path: Path, warm: None) -> None:
    found: Counter[str] = Counter()
    campaign.round_(number, found, tmp_path, campaign.KINDS)
    assert found["cases"] == campaign.CASES
    assert found["flips"] == 5
    assert found["violations"] == 0, [path.read_text() for path in tmp_path.glob("*.json")]


@pytest.fixture(scope="module")
def first_jobs() -> None:
    """The first job of each kind, whose answer and files children find in memory."""
    for part in {part for parts, _ in laws.LAWS.values() for part in parts}:
        with own_folder(), suppress(InputError):
            Job(part, drawn(part, 1)).result()


@pytest.mark.parametrize("law", laws.LAWS)
def test_every_law_holds_and_says_something_of_a_kind_of_job(law: str, first_jobs: None) -> None:
    said: list[str | None] = []
    for part in laws.LAWS[law][0]:
        said += [verdict.violation for verdict in verdicts(laws.LawTrial(law, part, 1))]
        if said[-1] is not None:
            break
    assert said[-1] == ""


@pytest.mark.parametrize("part", PARTS)
def test_most_jobs_that_are_drawn_can_run(part: str) -> None:
    told = verdicts(*(laws.LawTrial("renaming changes nothing", part, n) for n in range(12)))
    assert sum(verdict.violation == "" for verdict in told) >= 8


def test_experts_with_a_divided_sequence_and_something_slow_are_drawn_often() -> None:
    jobs = [drawn("experts", number) for number in range(200)]
    divided = [job for job in jobs if {"cp", "axes"} & job["plan"].keys()]
    assert len(divided) > 50
    assert sum("straggler" in job for job in divided) > 10


@pytest.mark.long
def test_a_delay_among_ranks_that_contend_grows_and_vanishes_with_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    healthy = Job("experts", drawn("experts", 632)).without("straggler")
    usual = healthy.time()

    def gap(more: float) -> float:
        slow = healthy.but({"straggler": [{"rank": 5, "factor": 1.0 + more}]})
        return slow.time() / usual - 1.0

    assert gap(1e-8) > 5 * 1e-8  # how much depends on the kernels between two meetings
    assert gap(1e-10) == pytest.approx(gap(1e-8) / 100, rel=0.05)
    assert gap(1e-12) == pytest.approx(0.0, abs=1e-15)


def test_a_trial_that_ends_its_process_is_a_violation_and_the_others_stay() -> None:
    def die() -> str:
        os.kill(os.getpid(), signal.SIGKILL)
        return ""

    told = verdicts(Act(lambda: ""), Act(die), Act(lambda: ""))
    assert [verdict.violation for verdict in told] == ["", "sleeps or was killed"]


def test_a_trial_that_never_ends_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "PATIENCE", 0)

    def spin() -> str:
        while True:
            pass

    def sleep() -> str:
        time.sleep(60.0)
        return ""

    assert verdicts(Act(spin))[0].violation == "takes more than 0 s of CPU time"
    monkeypatch.setattr(trials, "ASLEEP", 0.2)
    assert verdicts(Act(sleep))[0].violation == "sleeps or was killed"


def test_an_error_of_any_kind_is_a_violation_with_its_place() -> None:
    def mistake() -> str:
        raise KeyError("a")

    (told,) = verdicts(Act(mistake))
    assert told.violation is not None
    assert told.violation.startswith("KeyError (test_campaign.py:")


def test_a_violation_is_written_down_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = {"two is one": (PARTS, lambda job, chance: "2.0 is not 1.0")}
    monkeypatch.setattr(laws, "LAWS", broken)
    (verdict,) = verdicts(laws.LawTrial("two is one", "dense", 3))
    path = campaign.kept(verdict, tmp_path)
    assert json.loads(path.read_text())["job"] == drawn("dense", 3)
    assert campaign.replayed(path) == "2.0 is not 1.0"
    monkeypatch.setattr(laws, "LAWS", {"two is one": (PARTS, lambda job, chance: "")})
    assert campaign.replayed(path) == ""


def test_a_case_is_the_same_after_it_was_written_and_read() -> None:
    case = Case(arguments=("list", "devices"), files={"a/b.toml": b"\xff\x00"})
    assert Case.of(json.loads(json.dumps(trials.named(case)))) == case
    assert called(case.arguments).code == 0


def test_the_next_run_goes_on_behind_the_rounds_that_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = []

    def one(number: int, found: Counter[str], *_: object) -> None:
        played.append(number)
        found["cases"] += 1

    monkeypatch.setattr(campaign, "round_", one)
    monkeypatch.setattr(campaign, "warm", lambda: None)
    monkeypatch.setattr(campaign, "warm_jobs", lambda: None)
    campaign.campaign(60.0, None, 2, tmp_path)
    found = campaign.campaign(60.0, None, 1, tmp_path)
    assert played == [1, 2, 3]
    assert campaign.summary(found).startswith("3 rounds: 3 of 10,000 cases, 0 of 20,000 laws")


@pytest.mark.long
def test_a_killed_calibration_goes_on() -> None:
    (told,) = verdicts(harm.CalibrationKill(3))
    assert told.violation in ("", None)  # None where there is no torch


@pytest.mark.parametrize(
    ("code", "output", "complaint", "violation"),
    [
        (0, "step 1.2 s", "", ""),
        (0, "step nan s", "", "answers with nan"),
        (2, "", "error: a: b; c\n", ""),
        (2, "", "warning: x\nerror: a: b; c\n", ""),
        (2, "", "error: a\nerror: b\n", "is not one line"),
        (70, "", "Traceback\nKeyError: 3\n", "ends with code 70: KeyError: 3"),
    ],
)
def test_a_violation_is_what_a_user_must_never_see(
    code: int, output: str, complaint: str, violation: str
) -> None:
    assert Outcome(code=code, output=output, complaint=complaint).violation == violation
