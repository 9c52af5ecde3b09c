"""Goodput: the productive share of a long run, from rates of failures and rules of recovery.

Effective training time = productive time / elapsed time (Llama 3, arXiv 2407.21783, section 3.3.4).
The classic formulas for the best interval between checkpoints are computed, too. For a checkpoint
of cost C (s) and a mean time M (s) between failures: Young 1974, tau = sqrt(2 C M); Daly 2006,
equation 37, tau = sqrt(2 C M) [1 + sqrt(C / 2M) / 3 + C / 18M] - C for C < 2M, else M.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf, sqrt
from os import PathLike
from typing import Any

import numpy as np

from sim import kind, questions
from sim.analysis.reliability.cost import TrainingCost, cost_of
from sim.analysis.reliability.failures import Failures, Recovery, of_table
from sim.analysis.reliability.failures import load as load_failures
from sim.analysis.reliability.saving import Saving, saving, stored
from sim.config import limit
from sim.config.counting import counted
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.progress import waited
from sim.config.stopping import so_far
from sim.config.units import DAY
from sim.engine.timeline import Deferred
from sim.engine.training_run import CAUSES, Conduct, Fault, Ledger, simulate
from sim.kind import Setup
from sim.parallel.checkpoint import Checkpoints
from sim.results.answer import Answer, Inputs
from sim.results.likely import Likely, Pace
from sim.scenario.scenario import BaseScenario
from sim.scenario.settings import Settings, settings_of
from sim.variability.laws import generator


def young(cost: float, between: float) -> float:
    """Young's best interval between checkpoints (s).

    Source: Young 1974, A first order approximation to the optimum checkpoint interval.

    >>> young(5.0, 1000.0)
    100.0
    """
    return sqrt(2.0 * cost * between)


def daly(cost: float, between: float) -> float:
    """Daly's higher-order best interval between checkpoints (s).

    Source: Daly 2006, A higher order estimate of the optimum checkpoint interval for restart
    dumps, equation 37.

    >>> round(daly(5.0, 1000.0), 2)
    96.69
    """
    if cost >= 2.0 * between:
        return between
    ratio = cost / (2.0 * between)
    return young(cost, between) * (1.0 + sqrt(ratio) / 3.0 + ratio / 9.0) - cost


def expected_share(conduct: Conduct, between: float) -> float:
    """Return the effective share by Daly 2006, equation 20:

    M e^(-(D+R)/M) (tau/M) / (e^((tau+C)/M) - 1)

    M (`between`) is the mean time between failures. After each failure, D s of detection and R s of
    restart pass. A checkpoint every tau s of training stops training for C s.
    """
    if between == float("inf"):
        return conduct.interval / (conduct.interval + conduct.stop)
    away = (conduct.detection + conduct.restart) / between
    cycle = (conduct.interval + conduct.stop) / between
    return float(np.exp(-away) * (conduct.interval / between) / np.expm1(cycle))


TARGET = 0.9  # the effective share that `allowed` asks for
_STOPS = (1.0, 5.0, 15.0, 30.0, 60.0)  # examples of seconds that a checkpoint stops training
_LOOKED_AT = 32  # if workers fail one by one, at most so many of them are simulated
ENOUGH = 10**9  # spare nodes that never run out

# How often all days are simulated (the ledger, and nine intervals), and seconds on one core for
# each failure.
_RUNS, _OF_FAULT = 10, 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput(Answer):
    """`seconds` by cause over `days`; `effective` is the share that is productive.

    `between` is the mean time between interruptions (s). `young` and `daly` are the intervals of
    the formulas. `formula` is the effective share that Daly's formula expects at the interval used.
    `best` is the interval that the simulation finds best, with its effective share; `tried` are all
    simulated intervals with their shares. `tokens_likely` are the tokens if steps take as long as
    measured steps. `assumed` says in words what the answer rests on.

    If `alone` workers each fail by themselves (asynchronous methods), `seconds` and `conduct`
    describe a mean worker, but `between` counts the interruptions of all workers.
    """

    view = "sim.interface.views.reliability:goodput"
    picture = "sim.interface.plots.reliability:goodput"
    derived = ("effective_training_time=effective",)
    frame_rows = "rows"
    frame_index = ("cause",)

    days: float
    gpus: int
    conduct: Conduct
    checkpoint_bytes: float
    seconds: dict[str, float]
    interruptions: int
    faults: dict[str, int]
    between: float
    young: float
    daly: float
    formula: float
    best: tuple[float, float]
    tokens: float
    tokens_likely: dict[str, float]
    cost: TrainingCost
    allowed: Sequence[dict[str, float]]
    inputs: Inputs
    tried: tuple[tuple[float, float], ...] = ()
    assumed: tuple[str, ...] = ()
    fits: bool | None = True
    alone: int = 1

    @property
    def effective(self) -> float:
        return self.seconds["productive"] / sum(self.seconds.values())

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each cause: its seconds and their share of all seconds."""
        total = sum(self.seconds.values())
        return [
            {"cause": cause, "seconds": seconds, "share": seconds / total}
            for cause, seconds in self.seconds.items()
        ]


def goodput(
    scenario: str | PathLike[str] | BaseScenario,
    *,
    failures: str = "llama3",
    days: float = 30.0,
    seed: int = 0,
    price: str | None = None,
    settings: Settings = (),
) -> Goodput:
    """Simulate `days` of a scenario, with `settings` applied.

    `failures` is a table of `topologies/failures`, a .toml, or a .csv of interruptions. Settings
    such as "recovery.restart=10 min" change the table; any other key changes the scenario. The
    scenario's own checkpoints and storage are used if it has any, unless recovery.interval or
    .storage is set. `price` is a GPU's rent such as "2 USD/h" and replaces the topology's. Raises
    `InputError`.
    """
    pairs = settings_of(settings, price)
    settled = of_table(pairs)
    if not 0.0 < days < inf:
        raise InputError("--days", f"{days:g} is not positive", "write a positive number")
    table = load_failures(failures, list(settled.items()))
    job = kind.load(scenario, {k: v for k, v in pairs.items() if k not in settled})
    setup, checkpoints = kind.set_up(job, brief=True), job.checkpoints
    table.check_states(job)
    pace = questions.pace(setup)
    gpus = pace.topology.gpus
    job_failures = table.in_states(job, pace).of_job(gpus, checkpoints, pace.seconds, settled)
    saved = saving_of(setup, pace, checkpoints, job_failures.recovery, settled)
    found = of_pace(pace, job_failures, days=days, seed=seed, saved=saved)
    assumed = (*table.assumed(gpus, checkpoints, settled, saved), *stored(pace.topology, saved))
    return replace(found, assumed=(*assumed, *job_failures.states))


def saving_of(
    setup: Setup,
    pace: Pace,
    checkpoints: Checkpoints | None,
    recovery: Recovery,
    settled: Container[str],
) -> Saving | None:
    """Return the seconds of a scenario's checkpoints if their traffic is played; None if a
    bandwidth or a key that the user `settled` gives the seconds. A plan without checkpoints uses
    the topology's own storage, if it has one."""
    if checkpoints is None and setup.job is not None and pace.topology.storage is not None:
        checkpoints = Checkpoints(steps=1)  # the best interval is found later
    if checkpoints is None or checkpoints.storage is not None or pace.alone > 1:
        return None
    if any(f"recovery.{key}" in settled for key in ("storage", "stop", "asynchronous", "snapshot")):
        return None
    return saving(setup, pace, checkpoints, recovery.bytes or 0.0)


@waited("failures and repairs")
def of_pace(
    pace: Pace, failures: Failures, *, days: float, seed: int = 0, saved: Saving | None = None
) -> Goodput:
    """Simulate `days` of training at a pace. `saved` are the seconds of checkpoints whose traffic
    was played; if it is None, `failures.recovery` gives them."""
    if pace.alone > 1:
        return _of_workers_alone(pace, failures, days=days, seed=seed)
    topology = pace.topology
    faults = failures.faults(topology.gpus)
    between = failures.between(topology.gpus)
    size = failures.recovery.bytes or pace.size
    conduct = conduct_of(failures.recovery, size, between, pace.replicas, saved)
    limit.refuse_long("--days", f"{days:g} days", days * DAY / between * _RUNS * _OF_FAULT)
    ledger = run(faults, conduct, days, seed)
    tokens, cost = _earned(pace, ledger.seconds["productive"], days)
    tried = intervals(faults, conduct, days, seed)
    return Goodput(
        days=days, gpus=topology.gpus, conduct=conduct, checkpoint_bytes=size,
        seconds=ledger.seconds, interruptions=_stops(faults, ledger.faults), faults=ledger.faults,
        between=between, young=young(conduct.stop, between), daly=daly(conduct.stop, between),
        formula=expected_share(conduct, between), best=max(tried, key=lambda pair: pair[::-1]),
        tried=tried, tokens=tokens, cost=cost, inputs=pace.inputs, fits=pace.fits,
        tokens_likely=_tokens(tokens, pace.sure) if pace.sure else {},
        allowed=Deferred(partial(allowed, faults, conduct, between, days, seed)),
    )  # fmt: skip


def _of_workers_alone(pace: Pace, failures: Failures, *, days: float, seed: int) -> Goodput:
    """Simulate workers that do not wait for one another, and return the mean of their ledgers. Each
    worker has the faults of its own devices and servers. While it is away, servers or the other
    workers hold the weights. So checkpoints stop nobody, and no worker returns to a checkpoint."""
    faults = failures.faults(pace.gpus_of_one)
    of_all = failures.faults(pace.topology.gpus)
    alone, between = map(failures.between, (pace.gpus_of_one, pace.topology.gpus))
    size = failures.recovery.bytes or pace.size
    recovery = replace(failures.recovery, interval=days * DAY, stop=0.0, elastic=False)
    conduct = replace(conduct_of(recovery, 0.0, alone, 1), at_risk=pace.at_risk)
    looked_at = min(pace.alone, _LOOKED_AT)
    limit.refuse_long("--days", f"{days:g} days", days * DAY / alone * looked_at * _OF_FAULT)
    workers = counted(range(looked_at), total=looked_at, unit="worker")
    ledgers = [run(faults, conduct, days, seed, worker) for worker in workers]
    seconds = {
        cause: sum(ledger.seconds[cause] for ledger in ledgers) / looked_at for cause in CAUSES
    }
    expected = {fault.name: round(fault.rate * days * DAY) for fault in of_all}  # on average
    stops = _stops(of_all, expected)
    tokens, cost = _earned(pace, seconds["productive"], days)
    return Goodput(
        days=days, gpus=pace.topology.gpus, conduct=conduct, checkpoint_bytes=size,
        seconds=seconds, interruptions=stops, faults=expected, between=between,
        young=0.0, daly=0.0, formula=expected_share(replace(conduct, interval=pace.at_risk), alone),
        best=(conduct.interval, seconds["productive"] / (days * DAY)),
        tokens=tokens, tokens_likely={}, cost=cost, allowed=(), alone=pace.alone,
        inputs=pace.inputs, fits=pace.fits,
    )  # fmt: skip


def _stops(faults: Sequence[Fault], counts: Mapping[str, int]) -> int:
    """Return how many of the counted faults stop training."""
    lasting = {fault.name for fault in faults if fault.lasts is not None}
    return sum(count for name, count in counts.items() if name not in lasting)


def _earned(pace: Pace, productive: float, days: float) -> tuple[float, TrainingCost]:
    """Return the tokens of the productive seconds, and the cost of all days."""
    tokens, share = productive / pace.seconds * pace.tokens, productive / (days * DAY)
    cost = cost_of(
        pace.topology, pace.seconds, pace.tokens, tokens, goodput=share or 1.0, watts=pace.watts
    )
    return tokens, cost


def _tokens(simulated: float, measured: Likely) -> dict[str, float]:
    """Return the tokens of the same seconds if steps take as long as measured steps."""
    return {
        "level": measured.level,
        "low": simulated / measured.high,
        "expected": simulated / measured.expected,
        "high": simulated / measured.low,
    }


def conduct_of(
    recovery: Recovery, size: float, between: float, replicas: int, saved: Saving | None = None
) -> Conduct:
    """Return how a job behaves after faults. `saved` are the seconds of checkpoints whose traffic
    was played. Without `saved`, a blocking checkpoint stops training for bytes / storage. An
    asynchronous checkpoint stops it for a snapshot and is written while training goes on. Every
    restart reads a checkpoint back."""
    if saved is None:
        saved = Saving.at(size, recovery.storage)
        stop = recovery.stop if recovery.stop is not None else saved.stop
        if recovery.asynchronous:
            saved = replace(saved, stop=min(recovery.snapshot, stop), persist=saved.stop)
        else:
            saved = replace(saved, stop=stop)
    interval = recovery.interval or max(daly(max(saved.stop, 1.0), between), saved.stop)
    return Conduct(
        interval=min(interval, 30 * DAY),
        stop=saved.stop,
        persist=saved.persist,
        detection=recovery.detection,
        restart=recovery.restart + saved.read,
        in_place=None if saved.nearby is None else recovery.restart + saved.nearby,
        slow_detection=recovery.slow_detection,
        spares=ENOUGH if recovery.spares is None else recovery.spares,
        repair=recovery.repair,
        replicas=replicas,
        elastic=recovery.elastic,
    )


def run(faults: Sequence[Fault], conduct: Conduct, days: float, seed: int, *worker: int) -> Ledger:
    """Return the ledger of `days`. Its random numbers depend only on the seed, and on the number of
    a worker where each worker has its own ledger."""
    rng = generator(seed, "failures", *worker)
    return simulate(faults, conduct, seconds=days * DAY, rng=rng)


def effective(faults: Sequence[Fault], conduct: Conduct, days: float, seed: int) -> float:
    """Return the productive share of `days`."""
    return run(faults, conduct, days, seed).seconds["productive"] / (days * DAY)


def intervals(
    faults: Sequence[Fault], conduct: Conduct, days: float, seed: int
) -> tuple[tuple[float, float], ...]:
    """Return intervals around the interval in use, with their effective shares under the same
    failures."""
    tried = [max(conduct.interval * 2.0 ** (power / 2.0), 1.0) for power in range(-4, 5)]
    shares = so_far(
        (interval, effective(faults, replace(conduct, interval=interval), days, seed))
        for interval in tried
    )
    return tuple(counted(shares, total=len(tried), unit="interval"))


def allowed(
    faults: Sequence[Fault], conduct: Conduct, between: float, days: float, seed: int
) -> list[dict[str, float]]:
    """Return how long recovery may take for an effective share of `TARGET`. For each cost of a
    checkpoint, this is the longest sum of detection and restart that still reaches the target. The
    sum is found by bisection over simulations (0: out of reach)."""
    days = min(days, 54.0)
    changed = [
        replace(conduct, stop=stop, persist=0.0, interval=daly(stop, between)) for stop in _STOPS
    ]
    rows = so_far(
        {"checkpoint": variant.stop, "interval": variant.interval,
         "away": _longest(faults, variant, between, days, seed)}
        for variant in changed
    )  # fmt: skip
    return list(counted(rows, total=len(changed), unit="cost of checkpoints"))


def _longest(
    faults: Sequence[Fault], conduct: Conduct, between: float, days: float, seed: int
) -> float:
    if between == float("inf"):
        return between
    # By the formula, away = detection + restart < M ln(share if away = 0 / target), M = between.
    ideal = expected_share(replace(conduct, detection=0.0, restart=0.0), between)
    low, high = 0.0, max(2.0 * between * float(np.log(ideal / TARGET)), 60.0)
    for _ in range(5):
        middle = (low + high) / 2.0
        changed = replace(conduct, detection=middle / 4.0, restart=middle * 3.0 / 4.0)
        enough = effective(faults, changed, days, seed) >= TARGET
        low, high = (middle, high) if enough else (low, middle)
    return low
