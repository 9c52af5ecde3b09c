"""Straggler samples: one step of a job many times over, every rank with a slowdown of its own.

Each tensor-parallel group is as slow as its slowest member; each replica's pipeline is a column of
a replay with a slowdown of its own at every stage; replicas meet wherever a gradient is reduced.
So a sample of 16,384 ranks is 128 columns, and a thousand of them take seconds.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sim.config import limit
from sim.config.errors import InputError
from sim.config.progress import metered, waited
from sim.config.stopping import so_far
from sim.engine.replay_contention import SAMPLES, InexactError
from sim.parallel.memory import fullest, memories
from sim.parallel.step import training_step
from sim.results.answer import Answer, Inputs
from sim.results.assemble import inputs_of, too_big
from sim.samples.rank_slowdowns import Draws, Floats, RankSlowdowns
from sim.samples.replica_columns import Chosen, ClockCheck, ReplicaColumns
from sim.scenario.scenario import Scenario, load
from sim.scenario.setup import from_scenario
from sim.simulate import garbage_left
from sim.variability.jitter import Jitter
from sim.variability.laws import Lognormal

if TYPE_CHECKING:
    import pandas as pd

_CLOSER = 12_800  # columns for each closer look: at causes, meetings, nodes taken away
_REMOVED = (1, 4, 16)
_CLOCKED = 4  # runs of the clock where the healthy one's contention is not typical

_OF_RANK = 1e-6  # s of a rank in a step, on one core


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples(Answer):
    """Step times (s) of many steps, and where their loss comes from.

    `healthy` is the step with every rank as fast as usual; `loss` the mean step beyond it, split
    in two ways: `by_meeting` adds up to it (where time is lost by waiting), `by_cause` is what the
    mean step would gain without each cause. `sensitivity` has one row a stage: the seconds that
    one tensor-parallel group of it, slower by a tenth, costs the step. `removed` is the mean step
    after the slowest k nodes have given way to ordinary ones. `owed` [stages][replicas] are the
    seconds of the mean step that each group accounts for (first order). These are
    computed on the first `closer` samples. `mean_error` and `worst_error` are replay's against the
    clock.
    """

    view = "sim.samples.text"
    picture = "sim.plots.samples"
    unwritten = ("step_times", "owed")
    derived: ClassVar[Mapping[str, str]] = {
        "step_times": "drawn",
        "owed": "owed_by",
        "median": "median",
        "p95": "p95",
        "p99": "p99",
        "mean": "mean",
        "loss": "loss",
    }

    scenario: str
    inputs: Inputs
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
    fits: bool
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

    @property
    def median(self) -> float:
        return self.quantile(0.5)

    @property
    def p95(self) -> float:
        return self.quantile(0.95)

    @property
    def p99(self) -> float:
        return self.quantile(0.99)

    @property
    def drawn(self) -> list[float]:
        return list(map(float, self.step_times))

    @property
    def owed_by(self) -> list[list[float]]:
        return [list(map(float, row)) for row in self.owed]

    def to_frame(self) -> "pd.DataFrame":
        """One row a step: its time (s)."""
        import pandas as pd

        return pd.DataFrame({"step_time": self.step_times}).rename_axis("sample")


@waited("drawn steps")
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
    program = training_step(setup.job)
    if not program.ends:
        what = "stages end a step apart: it has no single end to draw"
        raise InputError(
            "--samples", what, "take another schedule, or set change.stack.post_validation = false"
        )
    ranks = setup.machine.topology.gpus
    limit.refuse_long("--samples", f"{count:,} steps of {ranks:,} GPUs", count * ranks * _OF_RANK)
    columns = ReplicaColumns.of(setup)
    constant = setup.machine.slowdown
    draws = Draws(jitter=jitter, placement=columns.placement, steps=count, slowdown=constant)
    try:
        evaluated = _evaluated(columns, draws)
    except InexactError:  # the healthy step's contention is not that of steps with stragglers
        columns = columns.contended_like(_some(columns, draws))
        try:
            evaluated = _evaluated(columns, draws)
        except InexactError as error:
            remedy = "lower the spread of [jitter], or play single steps"
            raise InexactError("--samples", error.what, remedy) from None
    held, room = fullest(memories(setup.job, program)), setup.job.device.usable_memory
    fits = held.fits(room)
    return Samples(
        scenario=setup.name,
        inputs=inputs_of(setup),
        samples=len(evaluated["step_times"]),
        seed=jitter.seed,
        ranks=setup.machine.topology.gpus,
        healthy=columns.healthy,
        **evaluated,
        contended=columns.contended,
        fits=fits,
        notes=(
            *_notes(jitter, columns, evaluated["mean_error"], evaluated["worst_error"]),
            *([] if fits else [too_big(held, room)]),
        ),
        wall_seconds=time.perf_counter() - began,
    )


def _some(columns: ReplicaColumns, draws: Draws) -> Floats:
    """A few replicas spread over all samples [columns, stages], the first and last left out."""
    last = draws.steps * columns.replicas - 1
    chosen = Chosen(np.linspace(0, last, _CLOCKED + 2).astype(np.intp)[1:-1])
    for block in draws.blocks():
        chosen.among(columns.placement.groups(block.total))
    return chosen.columns


def _evaluated(columns: ReplicaColumns, draws: Draws) -> dict[str, Any]:
    times, slowdown = np.empty(draws.steps), np.zeros(len(columns.placement.node))
    done = 0
    with (
        columns.clock_check(draws.steps) as clock_check,
        metered(draws.steps, unit="step") as more,
    ):
        for slow, own in so_far(_played(columns, draws, clock_check)):
            times[done : done + len(own)] = own
            done += len(own)
            more(len(own))
            for step in slow:
                slowdown += step
        times = times[:done]
        causes = _looked_into(columns, draws, slowdown / done, times)
        mean, worst = clock_check.errors()
    return {"step_times": times, **causes, "mean_error": mean, "worst_error": worst}


def _played(
    columns: ReplicaColumns, draws: Draws, clock_check: ClockCheck
) -> Iterator[tuple[Floats, Floats]]:
    """Slowdowns of ranks [steps, ranks] and step times, block by block."""
    for block in draws.blocks():
        groups = columns.placement.groups(block.total)
        clock_check.look(groups)
        yield block.total, columns.steps(groups)


def _looked_into(
    columns: ReplicaColumns, draws: Draws, slowdown: Floats, times: Floats
) -> dict[str, Any]:
    """Where the loss comes from, on the first samples only where there are many; `slowdown` is
    every rank's in the mean of all."""
    close = min(len(times), max(1, _CLOSER // columns.replicas))
    closer = draws.first(close)
    groups = columns.placement.groups(closer.total)
    own, sensitivity = columns.own_steps(groups), columns.sensitivity()
    return {
        "by_meeting": _by_meeting(columns, closer, own, times),
        "by_cause": _by_cause(columns, closer, times[:close]),
        "sensitivity": sensitivity,
        "removed": _removed(columns, slowdown, closer, times[:close]),
        "owed": _owed(columns, groups, own, sensitivity),
        "closer": close,
    }


def _by_meeting(
    columns: ReplicaColumns, slowdowns: RankSlowdowns, own: Floats, times: Floats
) -> dict[str, float]:
    """The mean loss, step by step up from ranks that do not differ to the whole job."""
    groups, close = columns.placement.groups(slowdowns.total), len(own)
    even = np.full((1, columns.stages), slowdowns.total.mean())
    grouped = np.full((1, columns.stages), groups.mean())
    rungs = [
        columns.healthy,
        float(columns.pipelines(even)[0]),
        float(columns.pipelines(grouped)[0]),
        float(own.mean()),
        float(times[:close].mean()),
    ]
    names = (
        "ranks slower in the mean",
        "slowest of a tensor-parallel group",
        "stages of a pipeline out of step",
        "slowest replica at the gradients",
    )
    losses = dict(zip(names, np.diff(rungs).tolist(), strict=True))
    # The closer look is at some of the samples only; this keeps the sum that of all.
    losses[names[-1]] += float(times.mean() - times[:close].mean())
    return losses


def _by_cause(columns: ReplicaColumns, slowdowns: RankSlowdowns, times: Floats) -> dict[str, float]:
    """What the mean step gains without each cause."""
    mean = float(times.mean())
    if len(slowdowns.by_cause) == 1:
        return dict.fromkeys(slowdowns.by_cause, mean - columns.healthy)
    return {
        name: mean - float(columns.steps(columns.placement.groups(slowdowns.without(name))).mean())
        for name in slowdowns.by_cause
    }


def _removed(
    columns: ReplicaColumns, slowdown: Floats, closer: RankSlowdowns, times: Floats
) -> tuple[dict[str, float], ...]:
    """The mean step with the slowest nodes (by their mean slowdown) replaced by the median node."""
    placement = columns.placement
    per_node = np.bincount(placement.node, slowdown) / np.bincount(placement.node)
    order = np.argsort(-per_node, kind="stable")
    usual = np.flatnonzero(placement.node == order[len(order) // 2])
    rows = [{"nodes": 0, "mean": float(times.mean()), "gain": 0.0}]
    factors = closer.total.copy()
    for k, node in enumerate(order[: min(_REMOVED[-1], placement.nodes // 4)], 1):
        slow = np.flatnonzero(placement.node == node)
        factors[:, slow] = closer.total[:, usual[: len(slow)]]
        if k in _REMOVED:
            mean = float(columns.steps(placement.groups(factors)).mean())
            rows.append({"nodes": k, "mean": mean, "gain": rows[0]["mean"] - mean})
    return tuple(rows)


def _owed(
    columns: ReplicaColumns, groups: Floats, own: Floats, sensitivity: Sequence[Mapping[str, float]]
) -> Floats:
    """[stages, replicas]: in each sample the last replica's groups share what it lost.

    A group's share is its stage's sensitivity times its slowdown, scaled to the replica's loss.
    """
    weight = np.array([row["seconds"] for row in sensitivity])
    owed = np.zeros((columns.stages, columns.replicas))
    for sample, last in enumerate(own.argmax(axis=1)):
        lost = own[sample, last] - columns.healthy
        blame = weight * np.maximum(groups[sample, last] - 1.0, 0.0)
        if blame.sum() > 0.0 < lost:
            owed[:, last] += lost * blame / blame.sum()
    return owed / len(own)


def _notes(jitter: Jitter, columns: ReplicaColumns, mean: float, worst: float) -> tuple[str, ...]:
    notes = []
    if jitter.assumed:
        law = jitter.causes[0].law
        assert isinstance(law, Lognormal)
        notes.append(
            f"the scenario has no [jitter] table: lognormal with sigma {law.sigma} per rank and "
            "step is assumed"
        )
    if columns.contended:
        notes.append(
            "transfers share links: their slowdowns come from the clock; on "
            f"{SAMPLES} samples replay is {mean:+.2%} off it in the mean and {worst:.2%} at worst"
        )
    return tuple(notes)
