"""When is a training done, for which money, how many GPUs does a date need or a budget pay?

done = tokens / (tokens a step) x step / effective: the step is drawn from what measured runs make
of the simulated one (`sim.results.likely`), the effective share of the time from simulations with
failures, restarts and checkpoints (`sim.analysis.reliability.goodput`) until as many seconds are
productive. Every pair of the two counts alike.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from math import exp, inf, log
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sim import kind
from sim.analysis.reliability.cost import TrainingCost, cost_of, tokens_of
from sim.analysis.reliability.failures import Failures, of_table
from sim.analysis.reliability.failures import load as load_failures
from sim.analysis.reliability.goodput import conduct_of, of_pace, saving_of
from sim.analysis.reliability.saving import stopped
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.progress import counted
from sim.config.units import DAY
from sim.engine.training_run import durations
from sim.kind import Setup
from sim.parallel.mesh import axes
from sim.results.answer import Answer, Inputs
from sim.results.likely import Likely, Pace
from sim.scenario.scenario import BaseScenario
from sim.scenario.settings import Settings, settings_of
from sim.uncertainty import student
from sim.variability.laws import generator

if TYPE_CHECKING:
    import pandas as pd

CHANCES = (0.1, 0.5, 0.9)
_STEPS = 99  # quantiles of the step that are looked at
_RUNS, _FEW = 12, 4  # simulations of the days: of the job itself, of one with other GPUs
_LONGEST = 400 * DAY  # of productive time; the share of longer runs is that of so many days
_NEVER = 50.0  # times its productive time: a training that takes longer is taken to end never


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget(Answer):
    """`done` and `dollars` have the days and the rent that suffice with each of `CHANCES`; of the
    days, `share` counts in the mean.

    `within` is the chance of the `deadline` (days), `needed` are the fewest GPUs that fit the
    job and meet it with `chance`, with their days and dollars (empty: no size does, or there is no
    deadline). Of `money` (dollars) to spend, `affordable` are the numbers of GPUs that fit the job
    and finish it for no more with `chance`, and `soonest` is the quickest of them.
    `interruptions` are those of a device and year, and `between` the seconds from one of the job to
    the next; `assumed` says in words what this rests on.
    """

    view = "sim.interface.views.reliability:budget"
    picture = "sim.interface.plots.reliability:budget"
    derived: ClassVar[Mapping[str, str]] = {"done": "done", "dollars": "dollars"}
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
    money: float | None = None
    affordable: tuple[int, ...] = ()
    soonest: Mapping[str, float] = field(default_factory=dict)
    interruptions: float = 0.0
    between: float | None = None
    assumed: tuple[str, ...] = ()
    fits: bool | None = True
    inputs: Inputs

    @property
    def done(self) -> dict[str, float]:
        """Days by their chance."""
        return {f"{chance:g}": self.after(chance) / DAY for chance in CHANCES}

    @property
    def dollars(self) -> dict[str, float] | None:
        """Rent by its chance; None without a price."""
        if self.rent is None:
            return None
        return {chance: days * 24.0 * self.rent for chance, days in self.done.items()}

    def to_frame(self) -> "pd.DataFrame":
        """One row a chance: days and dollars."""
        import pandas as pd

        dollars = self.dollars or {}
        rows = [{"chance": float(key), "days": days, "dollars": dollars.get(key)}
                for key, days in self.done.items()]  # fmt: skip
        return pd.DataFrame(rows).set_index("chance")

    def after(self, chance: float) -> float:
        """The seconds after which the training is done with a chance."""
        return _quantile(self.times, chance)


def budget(
    scenario: str | PathLike[str] | BaseScenario,
    *,
    tokens: float | None = None,
    deadline: float | None = None,
    money: float | None = None,
    failures: str | None = None,
    chance: float = 0.9,
    price: str | None = None,
    settings: Settings = (),
) -> Budget:
    """When a scenario has trained on its tokens, or on `tokens`, with `settings` applied.

    `failures` is a table of interruptions as `sim goodput` takes it, or None for none at all;
    settings such as "recovery.restart=10 min" change it. With a `deadline` (s) the fewest GPUs are
    looked for that meet it with this `chance`, in the scenario's layout with more or fewer
    replicas; with `money` (dollars) the numbers of GPUs whose rent stays within it.
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
    outlook = _Outlook(tokens, table, settled, chance)
    setup = kind.set_up(job, brief=True)
    if setup.job is None and (deadline, money) != (None, None):
        asked = "--budget" if deadline is None else "--deadline"
        fault = f"how many GPUs {asked} needs is found with replicas of a plan, which it has not"
        raise InputError(job.name, fault, f"leave {asked} out; --chance 90% gives the days")
    pace = kind.pace(setup)
    share, times = outlook.of(setup, pace, job, _RUNS)
    if not share:
        raise InputError(job.name, "is never done: it fails before it has come back",
                         "shorten recovery.restart, or take fewer GPUs")  # fmt: skip
    topology = pace.topology
    rent = topology.gpus * topology.price.hour if topology.price else None
    if money is not None and rent is None:
        raise InputError("--budget", f"{topology.name} has no price", 'add --price "2 USD/h"')
    sizes = _Sizes(outlook, job)
    within = sizes.paid_with(money) if money is not None else range(0)
    assumed: tuple[str, ...] = ()
    if table:
        saved = saving_of(setup, pace, job.checkpoints, table.recovery, settled)
        assumed = table.assumed(topology.gpus, job.checkpoints, settled, saved)
    return Budget(
        tokens=tokens, gpus=topology.gpus, share=share, times=tuple(times), rent=rent,
        cost=cost_of(topology, pace.seconds, pace.tokens, tokens, goodput=share, watts=pace.watts),
        chance=chance, deadline=deadline and deadline / DAY,
        within=None if deadline is None else float(np.mean(np.asarray(times) <= deadline)),
        needed=sizes.in_time(deadline) if deadline is not None else {},
        money=money,
        affordable=tuple(sizes[place].gpus for place in within),
        soonest=sizes[within[-1]].told if within else {},
        interruptions=table.per_device_year if table else 0.0,
        between=table.in_states(job, pace).between(topology.gpus) if table else None,
        assumed=assumed,
        fits=pace.fits, inputs=pace.inputs,
    )  # fmt: skip


def _quantile(times: Sequence[float], chance: float) -> float:
    """The first of some times by which so large a share of them is over."""
    return float(np.quantile(times, chance, method="inverted_cdf"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Size:
    """So many GPUs: their days and their rent with the chance that is asked for."""

    gpus: int
    days: float
    dollars: float | None
    fits: bool

    @property
    def told(self) -> dict[str, float]:
        known = {} if self.dollars is None else {"dollars": self.dollars}
        return {"gpus": float(self.gpus), "days": self.days, **known}


@dataclass(frozen=True, slots=True)
class _Outlook:
    """The times of a training of so many `tokens`, with failures of a table, if any."""

    tokens: float
    table: Failures | None
    settled: Mapping[str, Any]
    chance: float

    def of(
        self, setup: Setup, pace: Pace, job: BaseScenario, runs: int
    ) -> tuple[float, list[float]]:
        """The share of the time that counts in the mean, and times to the end (s), all alike."""
        plain = self.tokens / pace.tokens * pace.seconds
        shares = self._shares(setup, pace, job, min(plain, _LONGEST), runs)
        times = sorted(
            plain * ratio / share if share else inf
            for ratio in _ratios(pace.sure)
            for share in shares
        )
        return sum(shares) / len(shares), times

    def size(self, job: BaseScenario) -> _Size:
        """The days and the rent of a job with the chance."""
        setup = kind.set_up(job, brief=True)
        pace = kind.pace(setup)
        days = _quantile(self.of(setup, pace, job, _FEW)[1], self.chance) / DAY
        price, gpus = pace.topology.price, pace.topology.gpus
        dollars = days * 24.0 * gpus * price.hour if price else None
        return _Size(gpus=gpus, days=days, dollars=dollars, fits=pace.fits is not False)

    def _shares(
        self, setup: Setup, pace: Pace, job: BaseScenario, seconds: float, runs: int
    ) -> list[float]:
        """Of each run the share of the time that is productive, until so many seconds are."""
        if self.table is None:
            stop = stopped(setup, pace, job.checkpoints)
            return [pace.seconds / (pace.seconds + stop)]
        gpus = pace.topology.gpus
        table = self.table.in_states(job, pace)
        own = table.of_job(gpus, job.checkpoints, pace.seconds, self.settled)
        if pace.alone > 1:
            return [of_pace(pace, own, days=seconds / DAY).effective]
        faults, size = own.faults(gpus), own.recovery.bytes or pace.size
        saved = saving_of(setup, pace, job.checkpoints, own.recovery, self.settled)
        conduct = conduct_of(own.recovery, size, own.between(gpus), pace.replicas, saved)
        seeds = counted(range(runs), total=runs, unit="run")
        return [
            seconds / durations(faults, conduct, productive=[seconds], longest=_NEVER * seconds,
                               rng=generator(seed, "failures"))[0]
            for seed in seeds
        ]  # fmt: skip


class _Sizes:
    """The job with each number of replicas, fewest GPUs first; each is simulated when it is looked
    at. More GPUs hold no more each, are done sooner and cost more in all."""

    def __init__(self, outlook: _Outlook, job: BaseScenario) -> None:
        self._outlook, self._job = outlook, job
        self._tried: dict[int, _Size] = {}

    @cached_property
    def _jobs(self) -> list[BaseScenario]:
        return [scenario for _, scenario in sorted(_sizes(self._job).items())]

    def __getitem__(self, place: int) -> _Size:
        if place not in self._tried:
            self._tried[place] = self._outlook.size(self._jobs[place])
        return self._tried[place]

    def first(self, passes: Callable[[_Size], bool]) -> int:
        """The place of the first size that passes, where all behind it do; behind all if none."""
        return bisect_left(range(len(self._jobs)), True, key=lambda place: passes(self[place]))

    def in_time(self, deadline: float) -> dict[str, float]:
        """The fewest GPUs that are done by then; empty if none are."""
        place = self.first(lambda size: size.fits and size.days * DAY <= deadline)
        return self[place].told if place < len(self._jobs) else {}

    def paid_with(self, money: float) -> range:
        """The places of the sizes that fit and whose rent is no more."""
        dear = self.first(lambda size: (size.dollars or 0.0) > money)
        return range(self.first(lambda size: size.fits), dear)


def _ratios(sure: Likely | None) -> Sequence[float]:
    """Quantiles of a measured step over the simulated one."""
    if sure is None:
        return (1.0,)
    reach = student.quantile((1.0 + sure.level) / 2.0)
    scale = log(sure.high / sure.low) / (2.0 * reach)
    points = ((number + 0.5) / _STEPS for number in range(_STEPS))
    return [sure.expected * exp(scale * student.quantile(point)) for point in points]


def _sizes(job: BaseScenario) -> dict[int, BaseScenario]:
    """The job with each number of replicas that its batch and its cluster allow, by its GPUs."""
    setup = kind.planned(kind.set_up(job, brief=True))
    plan, found = setup.job.plan, dict[int, BaseScenario]()
    ranks = plan.degree(axis for axis in axes() if axis != "dp")
    whole = plan.global_batch // plan.microbatch
    for replicas in (each for each in range(1, whole + 1) if whole % each == 0):
        try:
            other = kind.load(job, {"gpus": replicas * ranks, "plan.dp": replicas})
            kind.set_up(other, brief=True)
        except InputError:
            continue
        found[replicas * ranks] = other
    return found
