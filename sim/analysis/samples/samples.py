"""Straggler samples: one step of a job is drawn many times, with a random slowdown for every rank.

Each tensor-parallel group is as slow as its slowest member. Each replica's pipeline is a column of
a replay, with a slowdown for every stage. Replicas meet wherever a gradient is reduced. So a sample
of 16,384 ranks in 128 replicas is 128 columns, and a thousand samples take seconds. A recording has
no such columns (`clocked`).

Replicas that are out of step share the links of a node less than replicas in step do. A column
knows only its own replica, and is evaluated as if the replica's neighbours were as slow as it is.
So the drawn time of a step with one slow replica lies between its true time and the time of a step
whose replicas are all as slow.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from sim import kind, questions
from sim.analysis.samples import clocked, seeds
from sim.analysis.samples.answer import Samples
from sim.analysis.samples.losses import assumed, by_cause, removed
from sim.analysis.samples.rank_slowdowns import Draws, Floats, RankSlowdowns
from sim.analysis.samples.replica_columns import Chosen, ClockCheck, ReplicaColumns
from sim.analysis.samples.seeds import Seeds
from sim.config import limit
from sim.config.counting import metered
from sim.config.errors import InputError
from sim.config.progress import waited
from sim.config.stopping import so_far
from sim.engine.columns.contention import SAMPLES, InexactError
from sim.parallel.memory import fullest, memories
from sim.parallel.step import training_step
from sim.results.assemble import inputs_of, too_big
from sim.scenario.scenario import BaseScenario
from sim.scenario.setup import PlanSetup
from sim.simulate import garbage_left
from sim.variability.laws import Jitter

_CLOSER = 12_800  # columns that are evaluated again for causes, waiting, and replaced nodes
_CLOCKED = 4  # steps with stragglers on the clock if the healthy step's contention is not typical

_OF_RANK = 1e-6  # s on one core to draw a rank in a step


def drawn(scenario: BaseScenario, count: int, *, task: Any = None) -> Samples | Seeds:
    """Return `count` steps with stragglers, or runs with `count` seeds if a play of the scenario
    draws random numbers itself. Raises `InputError`."""
    if count < 1:
        raise InputError("--samples", f"{count} is not a number of samples", "draw 1 or more")
    runs = questions.seeds(scenario)
    if runs is not None:
        return seeds.samples(runs, count, task=task)
    return samples(scenario, count, task=task)


@waited("drawn steps")
def samples(scenario: BaseScenario | str, count: int = 1000, *, task: Any = None) -> Samples:
    """Draw `count` steps of a scenario; its `[jitter]` table says how ranks vary.

    The same seed gives the same samples. If transfers contend, their slowdowns come from the
    healthy step on the clock. If the replay then differs from the clock by more than 1 %, they come
    from some steps with stragglers instead. Raises `InputError`, also if the replay still differs
    by more than 1 %.
    """
    job = kind.load(scenario)
    with garbage_left():
        setup, jitter = kind.set_up(job, task=task), job.jitter or Jitter()
        if setup.job is None:
            return clocked.samples(setup, jitter, count)
        return _samples(questions.planned(setup), jitter, count)


def _samples(setup: PlanSetup, jitter: Jitter, count: int) -> Samples:
    began = time.perf_counter()
    program = training_step(setup.job)
    if not program.ends:
        fault = "stages end a step at different times, so a step has no single end to draw"
        raise InputError(
            "--samples", fault, "take another schedule, or set change.stack.post_validation = false"
        )
    ranks = setup.machine.topology.gpus
    limit.refuse_long("--samples", f"{count:,} steps of {ranks:,} GPUs", count * ranks * _OF_RANK)
    columns = ReplicaColumns.of(setup)
    constant = setup.machine.slowdown
    draws = Draws(jitter=jitter, placement=columns.placement, steps=count, slowdown=constant)
    try:
        evaluated = _evaluated(columns, draws)
    except InexactError:  # with stragglers, contention differs from that of the healthy step
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
    """Return a few replicas spread over all samples [columns, stages], but not the first or
    last."""
    last = draws.steps * columns.replicas - 1
    chosen = Chosen(np.linspace(0, last, _CLOCKED + 2).astype(np.intp)[1:-1])
    for block in draws.blocks():
        chosen.among(columns.placement.groups(block.total))
    return chosen.columns


def _evaluated(columns: ReplicaColumns, draws: Draws) -> dict[str, Any]:
    times, slowdown = np.empty(draws.steps), np.zeros(len(columns.placement.node))
    done = 0
    with columns.clock_check(draws.steps) as clock_check, metered(draws.steps, unit="step") as more:
        for slow, seconds in so_far(_played(columns, draws, clock_check)):
            times[done : done + len(seconds)] = seconds
            done += len(seconds)
            more(len(seconds))
            for step in slow:
                slowdown += step
        times = times[:done]
        causes = _looked_into(columns, draws, slowdown / done, times)
        mean, worst = clock_check.errors()
    return {"step_times": times, **causes, "mean_error": mean, "worst_error": worst}


def _played(
    columns: ReplicaColumns, draws: Draws, clock_check: ClockCheck
) -> Iterator[tuple[Floats, Floats]]:
    """Yield slowdowns of ranks [steps, ranks] and step times, block by block."""
    for block in draws.blocks():
        groups = columns.placement.groups(block.total)
        clock_check.look(groups)
        yield block.total, columns.steps(groups)


def _looked_into(
    columns: ReplicaColumns, draws: Draws, slowdown: Floats, times: Floats
) -> dict[str, Any]:
    """Return where the loss comes from. Of many samples, only the first are looked at. `slowdown`
    is each rank's mean over all samples."""
    close = min(len(times), max(1, _CLOSER // columns.replicas))
    closer = draws.first(close)
    groups = columns.placement.groups(closer.total)
    own_steps, sensitivity = columns.own_steps(groups), columns.sensitivity()

    def steps(total: Floats) -> Floats:
        return columns.steps(columns.placement.groups(total))

    return {
        "by_meeting": _by_meeting(columns, closer, own_steps, times),
        "by_cause": by_cause(steps, closer, times[:close], columns.healthy),
        "sensitivity": sensitivity,
        "removed": removed(steps, columns.placement, slowdown, closer, times[:close]),
        "owed": _owed(columns, groups, own_steps, sensitivity),
        "closer": close,
    }


def _by_meeting(
    columns: ReplicaColumns, slowdowns: RankSlowdowns, own_steps: Floats, times: Floats
) -> dict[str, float]:
    """Return the parts of the mean loss. Each step of the comparison lets more ranks differ: first
    all ranks are equally slow, last all replicas have slowdowns of their own and meet."""
    groups, close = columns.placement.groups(slowdowns.total), len(own_steps)
    even = np.full((1, columns.stages), slowdowns.total.mean())
    grouped = np.full((1, columns.stages), groups.mean())
    rungs = [
        columns.healthy,
        float(columns.pipelines(even)[0]),
        float(columns.pipelines(grouped)[0]),
        float(own_steps.mean()),
        float(times[:close].mean()),
    ]
    names = (
        "ranks slower in the mean",
        "slowest of a tensor-parallel group",
        "stages of a pipeline out of step",
        "slowest replica at the gradients",
    )
    losses = dict(zip(names, np.diff(rungs).tolist(), strict=True))
    # The closer look has only some of the samples; this makes the sum the loss of all samples.
    losses[names[-1]] += float(times.mean() - times[:close].mean())
    return losses


def _owed(
    columns: ReplicaColumns,
    groups: Floats,
    own_steps: Floats,
    sensitivity: Sequence[Mapping[str, float]],
) -> Floats:
    """Return lost seconds [stages, replicas]. In each sample, the groups of the replica that ends
    last share its loss.

    A group's share is its stage's sensitivity times its slowdown, scaled to the replica's loss.
    """
    weight = np.array([row["seconds"] for row in sensitivity])
    owed = np.zeros((columns.stages, columns.replicas))
    for sample, last in enumerate(own_steps.argmax(axis=1)):
        lost = own_steps[sample, last] - columns.healthy
        blame = weight * np.maximum(groups[sample, last] - 1.0, 0.0)
        if blame.sum() > 0.0 < lost:
            owed[:, last] += lost * blame / blame.sum()
    return owed / len(own_steps)


def _notes(jitter: Jitter, columns: ReplicaColumns, mean: float, worst: float) -> tuple[str, ...]:
    notes = assumed(jitter)
    if columns.contended:
        notes.append(
            "transfers share links: their slowdowns come from the clock; on "
            f"{SAMPLES} samples replay is off by {mean:+.2%} on average and {worst:.2%} at worst"
        )
    offload = columns.setup.job.plan.offload
    shares = columns.contended or offload.activations or offload.parameters
    if shares and columns.replicas > 1:
        notes.append(
            "replicas share links: a slow replica is drawn as if its neighbours were as slow, so "
            "the lost time may be less"
        )
    return tuple(notes)
