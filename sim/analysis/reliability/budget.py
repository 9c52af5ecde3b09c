"""When is training done, at what cost, and how many GPUs does a deadline need or a budget allow?

Training is done when tokens / (tokens per step) x (seconds per step) are productive. The length of
a step is drawn from the distribution that measured runs give around the simulated step
(`sim.results.likely`).
Failures, restarts and checkpoints are simulated to find the time in which a run reaches its
productive seconds (`sim.engine.training_run`). Histories are added until the chance to be done by
any day has a standard error of at most 1.5 %. All pairs of a step and a history are equally likely.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from math import ceil, exp, inf, isfinite, log
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim import kind, questions
from sim.analysis.reliability.cost import TrainingCost, check_update, cost_of, tokens_of
from sim.analysis.reliability.failures import Failures, of_table
from sim.analysis.reliability.failures import load as load_failures
from sim.analysis.reliability.goodput import conduct_of, of_pace, saving_of
from sim.analysis.reliability.saving import stopped, stored
from sim.config.counting import counted
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.units import DAY, HOUR, Number, PositiveSeconds
from sim.engine.training_run import durations
from sim.kind import Setup
from sim.parallel.mesh import axes
from sim.results.answer import Answer, Inputs
from sim.results.likely import Likely, Pace
from sim.scenario.scenario import BaseScenario
from sim.scenario.settings import Settings, settings_of
from sim.uncertainty import student
from sim.variability.laws import generator

CHANCES = (0.1, 0.5, 0.9)
_STEPS = 99  # quantiles of the step's distribution
_FEWEST, _SURE = 64, 0.015  # the fewest histories of a job; the largest standard error
_LONGEST = 400 * DAY  # the most productive time that is simulated; times of longer runs are scaled
# Training longer than _NEVER x its productive time + _REPAIRS x a repair counts as never ending.
_NEVER, _REPAIRS = 50.0, 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget(Answer):
    """`done` and `dollars` have, for each of `CHANCES`, the days and the rent that suffice with
    this chance. `share` is the mean productive share of the days.

    The `deadline` (days) is met with the chance `within`. `needed` is the smallest number of GPUs
    that fit the job and meet the deadline with `chance`, with batch, days and dollars. It is empty
    without a deadline, or if no number of GPUs meets it. `keeping` is the smallest such number
    whose replicas divide the job's own `batch` of sequences. With `money` (dollars), `affordable`
    are the numbers of GPUs that fit the job, keep its batch, and finish within the money with
    `chance`; `soonest` is the number that finishes first. `interruptions` are a device's
    interruptions in a year. `between` is the mean time from one interruption of the job to the next
    (s). Some causes strike the whole job, equally often at any size; `whole` is the mean time
    between their interruptions (None: there are no such causes). `assumed` says in words what the
    answer rests on.
    """

    view = "sim.interface.views.reliability:budget"
    picture = "sim.interface.plots.reliability:budget"
    derived = ("done", "dollars")
    frame_rows = "rows"
    frame_index = ("chance",)
    unwritten = ("times",)

    tokens: float
    gpus: int
    share: float
    times: tuple[float, ...]
    rent: float | None
    cost: TrainingCost
    chance: float
    deadline: float | None = None
    within: float | None = None
    needed: Mapping[str, float]
    keeping: Mapping[str, float] = field(default_factory=dict)
    batch: int | None = None
    money: float | None = None
    affordable: tuple[int, ...] = ()
    soonest: Mapping[str, float] = field(default_factory=dict)
    interruptions: float = 0.0
    between: float | None = None
    whole: float | None = None
    assumed: tuple[str, ...] = ()
    fits: bool | None = True
    inputs: Inputs

    @property
    def done(self) -> dict[str, float]:
        """Days by the chance to be done within them."""
        return {f"{chance:g}": self.after(chance) / DAY for chance in CHANCES}

    @property
    def dollars(self) -> dict[str, float] | None:
        """Rent by the chance to be done for it; None without a price."""
        if self.rent is None:
            return None
        return {chance: days * 24.0 * self.rent for chance, days in self.done.items()}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each chance: days and dollars."""
        dollars = self.dollars or {}
        return [
            {"chance": float(key), "days": days, "dollars": dollars.get(key)}
            for key, days in self.done.items()
        ]

    def after(self, chance: float) -> float:
        """Return the seconds after which the training is done with a chance."""
        return _quantile(self.times, chance)


def budget(
    scenario: str | PathLike[str] | BaseScenario,
    *,
    tokens: Number | None = None,
    deadline: PositiveSeconds | None = None,
    money: Number | None = None,
    failures: str | None = None,
    chance: float = 0.9,
    price: str | None = None,
    settings: Settings = (),
) -> Budget:
    """Predict when a scenario has trained on its tokens, or on `tokens`, with `settings` applied.

    `failures` is a table of interruptions as `sim goodput` takes it; None means no failures.
    Settings such as "recovery.restart=10 min" change the table. With a `deadline` (s, or a text
    such as "3 weeks"), the answer has the fewest GPUs that meet it with this `chance`. Other
    numbers of GPUs have more or fewer replicas of the scenario's layout, and the nearest batch that
    the replicas divide. With `money` (dollars), the answer has the numbers of GPUs whose rent stays
    within the money.
    Raises `InputError`.
    """
    if not 0.0 < chance < 1.0:
        raise InputError("--chance", f"{chance:g} is no chance", "give a share such as 90%")
    if deadline is not None and not 0.0 < deadline < inf:
        raise InputError("--deadline", f"{deadline:g} s is not positive", "write it like '3 weeks'")
    if money is not None and not 0.0 < money < inf:
        raise InputError("--budget", f"{money:g} is not positive", "write dollars like 400000")
    pairs = settings_of(settings, price)
    settled = of_table(pairs)
    if settled and failures is None:
        raise InputError(next(iter(settled)), "changes failures, but there are none",
                         "add --failures")  # fmt: skip
    table = load_failures(failures, list(settled.items())) if failures is not None else None
    job = kind.load(scenario, {k: v for k, v in pairs.items() if k not in settled})
    tokens = tokens_of(job, tokens)
    if table:
        table.check_states(job)
    outlook = _Outlook(tokens, table, settled, chance)
    size = outlook.of(job)
    if size.setup.job is None and (deadline, money) != (None, None):
        asked = "--budget" if deadline is None else "--deadline"
        fault = f"{asked} tries other numbers of replicas, but the job has no plan"
        raise InputError(job.name, fault, f"leave {asked} out; --chance 90% gives the days")
    if not size.share:
        raise InputError(job.name, "is never done: it fails again before a restart ends",
                         "shorten recovery.restart, or take fewer GPUs")  # fmt: skip
    pace, rent = size.pace, size.rent
    topology = pace.topology
    if money is not None and rent is None:
        raise InputError("--budget", f"{topology.name} has no price", 'add --price "2 USD/h"')
    sizes = None if (deadline, money) == (None, None) else _Sizes(outlook, size)
    needed, keeping = sizes.in_time(deadline) if sizes and deadline else ({}, {})
    paid = sizes.paid_with(money) if sizes and money else []
    assumed: tuple[str, ...] = ()
    played = table.in_states(job, pace) if table else None
    if table:
        saved = saving_of(size.setup, pace, job.checkpoints, table.recovery, settled)
        assumed = (
            *table.assumed(topology.gpus, job.checkpoints, settled, saved),
            *stored(topology, saved),
        )
    return Budget(
        tokens=tokens, gpus=topology.gpus, share=size.share, times=tuple(size.times), rent=rent,
        cost=cost_of(
            topology, pace.seconds, pace.tokens, tokens, goodput=size.share, watts=pace.watts
        ),
        chance=chance, deadline=deadline and deadline / DAY,
        within=None if deadline is None else float(np.mean(np.asarray(size.times) <= deadline)),
        needed=needed, keeping=keeping, batch=sizes.batch if sizes else None,
        money=money, affordable=tuple(size.gpus for size in paid),
        soonest=paid[-1].told if paid else {},
        interruptions=table.per_device_year if table else 0.0,
        between=played.between(topology.gpus) if played else None,
        whole=_known(played.between(topology.gpus, "job")) if played else None,
        assumed=assumed,
        fits=pace.fits, inputs=pace.inputs,
    )  # fmt: skip


def _known(seconds: float) -> float | None:
    return seconds if isfinite(seconds) else None


def _quantile(times: Sequence[float] | NDArray[np.float64], chance: float) -> float:
    """Return the smallest of the times that is at least as long as a share `chance` of them."""
    return float(np.quantile(times, chance, method="inverted_cdf"))


@dataclass(frozen=True, slots=True)
class _Outlook:
    """What all sizes of a job share: the `tokens` to train on, the table of failures, if any, its
    values `settled` by the user, and the requested chance."""

    tokens: float
    table: Failures | None
    settled: Mapping[str, Any]
    chance: float

    def of(self, job: BaseScenario) -> "_Size":
        setup = kind.set_up(job, brief=True)
        return _Size(self, job, setup, questions.pace(setup))


class _Size:
    """A job on a number of GPUs: when it is done, and for how much rent."""

    def __init__(self, outlook: _Outlook, job: BaseScenario, setup: Setup, pace: Pace) -> None:
        self.outlook, self.job, self.setup, self.pace = outlook, job, setup, pace
        check_update(outlook.tokens, pace)
        self.gpus, self.fits = pace.topology.gpus, pace.fits is not False

    @property
    def rent(self) -> float | None:
        """Dollars an hour of all GPUs."""
        price = self.pace.topology.price
        return self.gpus * price.hour if price else None

    @property
    def seconds(self) -> float:
        """The time after which the job is done with the requested chance."""
        return _quantile(self.times, self.outlook.chance)

    @property
    def dollars(self) -> float | None:
        return None if self.rent is None else self.seconds / HOUR * self.rent

    @property
    def batch(self) -> int:
        return questions.planned(self.setup).job.plan.global_batch

    @property
    def told(self) -> dict[str, float]:
        told = {"gpus": float(self.gpus), "batch": float(self.batch), "days": self.seconds / DAY}
        return told if self.dollars is None else {**told, "dollars": self.dollars}

    @property
    def times(self) -> list[float]:
        """Equally likely times until the training is done (s), ascending."""
        return self._times[1]

    @property
    def share(self) -> float:
        """The share of the time that is productive, over all `times`."""
        return self._times[0]

    @cached_property
    def _times(self) -> tuple[float, list[float]]:
        updates = self.outlook.tokens / self.pace.tokens
        seconds = updates * self.pace.seconds
        goals = seconds * np.sort(_ratios(self.pace.sure))
        if self.outlook.table is None:
            stop = stopped(self.setup, self.pace, self.job.checkpoints)
            times = goals + updates * stop
            return float(goals.sum() / times.sum()), times.tolist()
        longer = max(seconds / _LONGEST, 1.0)
        times, longest = self._with_failures(self.outlook.table, goals / longer)
        share = np.where(np.isfinite(times), goals / longer, 0.0).sum()
        share /= np.minimum(times, longest).sum()
        return float(share), (longer * np.sort(times, axis=None)).tolist()

    def _with_failures(
        self, table: Failures, goals: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], float]:
        """Return the times after which `goals` (s) are productive, for each history, and the
        longest time that is simulated."""
        job, pace, settled = self.job, self.pace, self.outlook.settled
        failures = table.in_states(job, pace).of_job(
            self.gpus, job.checkpoints, pace.seconds, settled
        )
        if pace.alone > 1:
            share = of_pace(pace, failures, days=float(np.median(goals)) / DAY).effective
            return goals[None] / share if share else np.full((1, len(goals)), inf), inf
        faults, size = failures.faults(self.gpus), failures.recovery.bytes or pace.size
        saved = saving_of(self.setup, pace, job.checkpoints, failures.recovery, settled)
        conduct = conduct_of(
            failures.recovery, size, failures.between(self.gpus), pace.replicas, saved
        )
        longest = _NEVER * goals[-1] + _REPAIRS * conduct.repair

        def history(seed: int) -> list[float]:
            rng = generator(seed, "failures")
            return durations(faults, conduct, productive=goals.tolist(), longest=longest, rng=rng)

        found: list[list[float]] = []
        while len(found) < (needed := _needed(found)):
            more = range(len(found), needed)
            found += [history(seed) for seed in counted(more, total=len(more), unit="history")]
        return np.array(found), longest


def _needed(histories: Sequence[Sequence[float]]) -> int:
    """Return how many histories are needed. A history has a time for each length of the step. At
    each decile of all times, take the share of each history's times up to the decile. The mean of
    these shares over the histories must have a standard error of at most `_SURE`."""
    if not histories:
        return _FEWEST
    times, tenths = np.array(histories), np.linspace(0.1, 0.9, 9)
    deciles = np.quantile(times, tenths, method="inverted_cdf")
    over = [np.mean(times <= decile, axis=1) for decile in deciles]
    return max(_FEWEST, ceil(float(np.var(over, axis=1).max()) / _SURE**2))


class _Sizes:
    """A job with other numbers of replicas. A number is set up only when it is looked at, with the
    batch nearest to the job's own that the replicas divide. With more GPUs, each GPU holds no more
    memory, and the job is done sooner but costs more in total."""

    def __init__(self, outlook: _Outlook, size: _Size) -> None:
        self._outlook, self._job = outlook, size.job
        plan = questions.planned(size.setup).job.plan
        self.batch = plan.global_batch
        self._ranks = plan.degree(axis for axis in axes() if axis != "dp")
        replicas = plan.degree(["dp"])
        self._each = plan.microbatch * plan.data_parallel // replicas
        self._tried: dict[int, _Size | None] = {replicas: size}
        whole = self.batch // self._each
        self._all = range(1, whole + 1)
        self._alike = [replicas for replicas in self._all if whole % replicas == 0]

    def _with(self, replicas: int) -> _Size | None:
        """Return the job with a number of replicas; None where they cannot run."""
        if replicas not in self._tried:
            each = replicas * self._each
            batch = each * max(round(self.batch / each), 1)
            change = {"gpus": replicas * self._ranks, "plan.dp": replicas}
            try:
                job = kind.load(self._job, {**change, "plan.global_batch": batch})
                self._tried[replicas] = self._outlook.of(job)
            except InputError:
                self._tried[replicas] = None
        return self._tried[replicas]

    def _first(self, choices: Sequence[int], passes: Callable[[_Size], bool]) -> int:
        """Return the index of the first choice that passes, or the number of choices if none
        passes. The search assumes that every later choice that can run passes, too."""

        def enough(place: int) -> bool:
            size = next(filter(None, map(self._with, choices[place:])), None)
            return size is None or passes(size)

        place = bisect_left(range(len(choices)), True, key=enough)
        while place < len(choices) and self._with(choices[place]) is None:
            place += 1
        return place

    def in_time(self, deadline: float) -> tuple[dict[str, float], dict[str, float]]:
        """Return the fewest GPUs that are done by the deadline, then the fewest of these with the
        job's own batch; each is empty if there are none."""

        def passes(size: _Size) -> bool:
            return size.fits and size.seconds <= deadline

        place = self._first(self._alike, passes)
        keeping, fewer = self._alike[place:], reversed(self._alike[:place])
        late = next((replicas for replicas in fewer if self._with(replicas)), 0)
        between = range(late + 1, keeping[0] + 1 if keeping else len(self._all) + 1)
        fewest = between[self._first(between, passes) :]
        return self._told(fewest), self._told(keeping)

    def _told(self, choices: Sequence[int]) -> dict[str, float]:
        size = self._with(choices[0]) if choices else None
        return size.told if size else {}

    def paid_with(self, money: float) -> list[_Size]:
        """Return the sizes that keep the job's batch, fit, and cost no more rent than `money`."""
        dear = self._first(self._alike, lambda size: (size.dollars or 0.0) > money)
        found = filter(None, map(self._with, self._alike[:dear]))
        return [size for size in found if size.fits]


def _ratios(sure: Likely | None) -> Sequence[float]:
    """Return equally likely ratios of the measured step to the simulated step."""
    if sure is None:
        return (1.0,)
    reach = student.quantile((1.0 + sure.level) / 2.0)
    scale = log(sure.high / sure.low) / (2.0 * reach)
    points = ((number + 0.5) / _STEPS for number in range(_STEPS))
    return [sure.expected * exp(scale * student.quantile(point)) for point in points]
