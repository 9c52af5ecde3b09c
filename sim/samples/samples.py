"""Straggler samples: one step of a job many times over, every rank at a pace of its own.

Each tensor-parallel group runs at its slowest member's pace; each replica's pipeline is a column
of a replay with its own pace at every stage; the replicas meet wherever a gradient is reduced.
So a sample of 16,384 ranks is 128 columns, and a thousand of them take seconds.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from sim.config.errors import InputError
from sim.engine.replay_contention import SAMPLES, InexactError
from sim.results.shown import Shown
from sim.samples.rank_slowdowns import Floats, Pace, drawn
from sim.samples.replicas import Crowd
from sim.scenario.scenario import Scenario, load
from sim.scenario.setup import from_scenario
from sim.simulate import garbage_left
from sim.variability.jitter import Jitter

_CLOSER = 12_800  # columns for each closer look: at causes, meetings, nodes taken away
_REMOVED = (1, 4, 16)
_CLOCKED = 4  # runs of the clock where the healthy one's contention is not typical


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples(Shown):
    """Step times (s) of many steps, and where their loss comes from.

    `healthy` is the step with every rank at its usual pace; `loss` the mean step beyond it, split
    in two ways: `by_meeting` adds up to it (where time is lost by waiting), `by_cause` is what the
    mean step would gain without each cause. `sensitivity` has one row a stage: the seconds that
    one tensor-parallel group of it, slower by a tenth, costs the step. `removed` is the mean step
    after the slowest k nodes have given way to ordinary ones. `owed` [stages][replicas] are the
    seconds of the mean step that each group accounts for (first order). All of these, `closer`
    says on how many of the samples. `mean_error` and `worst_error` are replay's against the clock.
    """

    view = "sim.samples.text"

    scenario: str
    samples: int
    seed: int
    ranks: int
    healthy: float
    step_times: Floats = field(repr=False)
    by_meeting: dict[str, float]
    by_cause: dict[str, float]
    sensitivity: tuple[dict[str, float], ...]
    removed: tuple[dict[str, float], ...]
    owed: Floats = field(repr=False)
    closer: int
    contended: bool
    mean_error: float
    worst_error: float
    notes: tuple[str, ...]
    wall_seconds: float = field(compare=False)

    def quantile(self, share: float) -> float:
        return float(np.quantile(self.step_times, share))

    @property
    def mean(self) -> float:
        return float(self.step_times.mean())

    @property
    def loss(self) -> float:
        """The mean step beyond the healthy one (s)."""
        return self.mean - self.healthy

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, the step times of all samples included."""
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        found |= {"step_times": self.step_times.tolist(), "owed": self.owed.tolist()}
        quantiles = {"median": 0.5, "p95": 0.95, "p99": 0.99}
        found |= {name: self.quantile(share) for name, share in quantiles.items()}
        return {**found, "mean": self.mean, "loss": self.loss}


def samples(scenario: Scenario | str, count: int = 1000) -> Samples:
    """Draw `count` steps of a scenario; its `[jitter]` table says how ranks vary.

    The same seed gives the same samples. Where transfers contend, their slowdowns come from one
    clocked run of the healthy step, or from some with stragglers if replay cannot be held to the
    clock within 1 % otherwise. Raises `InputError`, also where it cannot even so.
    """
    if isinstance(scenario, str):
        scenario = load(scenario)
    if count < 1:
        raise InputError("--samples", f"{count} is not a number of samples", "draw 1 or more")
    with garbage_left():
        return _samples(scenario, count)


def _samples(scenario: Scenario, count: int) -> Samples:
    began = time.perf_counter()
    setup, jitter = from_scenario(scenario), scenario.jitter or Jitter()
    crowd = Crowd.of(setup)
    pace = drawn(jitter, crowd.places, count, slowdown=setup.machine.slowdown)
    try:
        found = _evaluated(crowd, pace)
    except InexactError:  # the healthy step's contention is not that of steps with stragglers
        flat = crowd.places.groups(pace.total).reshape(-1, crowd.stages)
        crowd = crowd.like(flat[np.linspace(0, len(flat) - 1, _CLOCKED + 2).astype(int)[1:-1]])
        found = _evaluated(crowd, pace)
    return Samples(
        scenario=setup.name,
        samples=count,
        seed=jitter.seed,
        ranks=setup.machine.topology.gpus,
        healthy=crowd.healthy,
        **found,
        contended=crowd.contended,
        notes=_notes(jitter, crowd, found["mean_error"], found["worst_error"]),
        wall_seconds=time.perf_counter() - began,
    )


def _evaluated(crowd: Crowd, pace: Pace) -> dict[str, Any]:
    groups = crowd.places.groups(pace.total)
    with crowd.checking(groups) as checking:
        times = crowd.steps(groups)
        found = _looked_at(crowd, pace, groups, times)
        mean, worst = checking.errors()
    return {"step_times": times, **found, "mean_error": mean, "worst_error": worst}


def _looked_at(crowd: Crowd, pace: Pace, groups: Floats, times: Floats) -> dict[str, Any]:
    """Where the loss comes from, on the first samples only where there are many."""
    close = min(len(times), max(1, _CLOSER // crowd.replicas))
    near, some = pace.first(close), groups[:close]
    own, sensitivity = crowd.own_steps(some), crowd.sensitivity()
    return {
        "by_meeting": _by_meeting(crowd, near, own, times),
        "by_cause": _by_cause(crowd, near, times[:close]),
        "sensitivity": sensitivity,
        "removed": _removed(crowd, pace, near, times[:close]),
        "owed": _owed(crowd, some, own, sensitivity),
        "closer": close,
    }


def _by_meeting(crowd: Crowd, pace: Pace, own: Floats, times: Floats) -> dict[str, float]:
    """The mean loss, step by step up from ranks that do not differ to the whole job."""
    groups, close = crowd.places.groups(pace.total), len(own)
    even = np.full((1, crowd.stages), pace.total.mean())
    grouped = np.full((1, crowd.stages), groups.mean())
    rungs = [
        crowd.healthy,
        float(crowd.pipelines(even)[0]),
        float(crowd.pipelines(grouped)[0]),
        float(own.mean()),
        float(times[:close].mean()),
    ]
    names = (
        "ranks slower in the mean",
        "slowest of a tensor-parallel group",
        "stages of a pipeline out of step",
        "slowest replica at the gradients",
    )
    found = dict(zip(names, np.diff(rungs).tolist(), strict=True))
    # The closer look is at some of the samples only; this keeps the sum that of all.
    found[names[-1]] += float(times.mean() - times[:close].mean())
    return found


def _by_cause(crowd: Crowd, pace: Pace, times: Floats) -> dict[str, float]:
    """What the mean step gains without each cause."""
    mean = float(times.mean())
    if len(pace.of) == 1:
        return dict.fromkeys(pace.of, mean - crowd.healthy)
    return {
        name: mean - float(crowd.steps(crowd.places.groups(pace.without(name))).mean())
        for name in pace.of
    }


def _removed(crowd: Crowd, pace: Pace, near: Pace, times: Floats) -> tuple[dict[str, float], ...]:
    """The mean step with the slowest nodes (by their mean pace) replaced by the median node."""
    places = crowd.places
    per_node = np.bincount(places.node, pace.total.mean(axis=0)) / np.bincount(places.node)
    order = np.argsort(-per_node, kind="stable")
    usual = np.flatnonzero(places.node == order[len(order) // 2])
    rows = [{"nodes": 0, "mean": float(times.mean()), "gain": 0.0}]
    factors = near.total.copy()
    for k, node in enumerate(order[: min(_REMOVED[-1], places.nodes // 4)], 1):
        slow = np.flatnonzero(places.node == node)
        factors[:, slow] = near.total[:, usual[: len(slow)]]
        if k in _REMOVED:
            mean = float(crowd.steps(places.groups(factors)).mean())
            rows.append({"nodes": k, "mean": mean, "gain": rows[0]["mean"] - mean})
    return tuple(rows)


def _owed(
    crowd: Crowd, groups: Floats, own: Floats, sensitivity: Sequence[Mapping[str, float]]
) -> Floats:
    """[stages, replicas]: in each sample the last replica's groups share what it lost.

    A group's share is its stage's sensitivity times its slowdown, scaled to the replica's loss.
    """
    weight = np.array([row["seconds"] for row in sensitivity])
    found = np.zeros((crowd.stages, crowd.replicas))
    for sample, last in enumerate(own.argmax(axis=1)):
        lost = own[sample, last] - crowd.healthy
        blame = weight * np.maximum(groups[sample, last] - 1.0, 0.0)
        if blame.sum() > 0.0 < lost:
            found[:, last] += lost * blame / blame.sum()
    return found / len(own)


def _notes(jitter: Jitter, crowd: Crowd, mean: float, worst: float) -> tuple[str, ...]:
    notes = []
    if jitter.assumed:
        sigma = jitter.causes[0].sigma
        notes.append(
            f"the scenario has no [jitter] table: lognormal with sigma {sigma} per rank and step "
            "is assumed"
        )
    if crowd.contended:
        notes.append(
            "transfers share links: their slowdowns come from the clock; on "
            f"{SAMPLES} samples replay is {mean:+.2%} off it in the mean and {worst:.2%} at worst"
        )
    return tuple(notes)
